# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The rules of SARIF 2.1.0 that a reader of mscclpp-check's files depends on, from the standard (OASIS, 2.1.0 errata 01).
"""Complaints about a SARIF document; none for a valid one."""

import re
import urllib.parse

LEVELS = ("none", "note", "warning", "error")
IMPORTANCES = ("important", "essential", "unimportant")


def complaints(document):
    found = []

    def want(condition, where, what):
        if not condition:
            found.append(f"{where}: {what}")
        return condition

    def typed(parent, name, kind, where, required=True):
        if name not in parent:
            want(not required, where, f"has no {name}")
            return None
        value = parent[name]
        good = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        return value if want(good, where, f"{name} is {value!r}") else None

    def message(parent, where, required=True):
        value = typed(parent, "message", dict, where, required)
        if value is not None:
            want(isinstance(value.get("text"), str) and value["text"], where, "message has no text")

    def artifact(place, bases, where):
        uri = typed(place, "uri", str, where)
        if uri is None:
            return
        want(re.fullmatch(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*", uri), where, f"{uri} is no URI")
        base = place.get("uriBaseId")
        if base is None:
            want(urllib.parse.urlparse(uri).scheme or not uri.startswith("/"), where, f"{uri} is a path without a scheme")
        else:
            want(base in bases, where, f"uriBaseId {base} is not in originalUriBaseIds")
            want(not urllib.parse.urlparse(uri).scheme and not uri.startswith("/"), where, f"{uri} is not relative")

    def location(value, bases, where):
        physical = typed(value, "physicalLocation", dict, where, required=False)
        if physical is not None:
            place = typed(physical, "artifactLocation", dict, where)
            if place is not None:
                artifact(place, bases, where)
            region = typed(physical, "region", dict, where, required=False)
            if region is not None:
                line = typed(region, "startLine", int, where)
                want(line is None or line >= 1, where, f"startLine is {line}")
        for logical in value.get("logicalLocations", []):
            typed(logical, "fullyQualifiedName", str, where)
        message(value, where, required=False)

    def result(value, rules, bases, where):
        message(value, where)
        rule = typed(value, "ruleId", str, where)
        index = typed(value, "ruleIndex", int, where)
        if rule is not None and index is not None:
            want(0 <= index < len(rules) and rules[index].get("id") == rule, where, f"ruleIndex {index} is not {rule}")
        want(value.get("level") in LEVELS, where, f"level is {value.get('level')!r}")
        count = value.get("occurrenceCount", 1)
        want(isinstance(count, int) and count >= 1, where, f"occurrenceCount is {count!r}")
        for name in ("locations", "relatedLocations"):
            for i, place in enumerate(value.get(name, [])):
                location(place, bases, f"{where}.{name}[{i}]")
        ids = [place.get("id") for place in value.get("relatedLocations", [])]
        want(len(set(ids)) == len(ids), where, "relatedLocations share an id")
        for i, flow in enumerate(value.get("codeFlows", [])):
            threads = typed(flow, "threadFlows", list, f"{where}.codeFlows[{i}]")
            want(threads, f"{where}.codeFlows[{i}]", "has no threadFlows")
            for j, thread in enumerate(threads or []):
                here = f"{where}.codeFlows[{i}].threadFlows[{j}]"
                steps = typed(thread, "locations", list, here)
                want(steps, here, "has no locations")
                for k, step in enumerate(steps or []):
                    want(step.get("importance", "important") in IMPORTANCES, f"{here}[{k}]", "importance is unknown")
                    level = step.get("nestingLevel", 0)
                    want(isinstance(level, int) and level >= 0, f"{here}[{k}]", f"nestingLevel is {level!r}")
                    if "location" in step:
                        location(step["location"], bases, f"{here}[{k}]")
        prints = value.get("partialFingerprints", {})
        want(all(isinstance(text, str) for text in prints.values()), where, "a fingerprint is no string")

    want(document.get("version") == "2.1.0", "document", f"version is {document.get('version')!r}")
    runs = typed(document, "runs", list, "document") or []
    want(runs, "document", "has no runs")
    guids = [run.get("automationDetails", {}).get("id") for run in runs]
    want(len(runs) == 1 or len(set(guids)) == len(runs), "document", "runs share an automationDetails.id")
    for i, run in enumerate(runs):
        where = f"runs[{i}]"
        driver = (typed(run, "tool", dict, where) or {}).get("driver", {})
        want(isinstance(driver.get("name"), str), where, "the tool has no name")
        rules = driver.get("rules", [])
        ids = [rule.get("id") for rule in rules]
        want(all(isinstance(name, str) for name in ids) and len(set(ids)) == len(ids), where, "rule ids are not unique")
        for rule in rules:
            for name in ("shortDescription", "fullDescription", "help"):
                want(isinstance(rule.get(name, {}).get("text"), str), f"{where}.{rule.get('id')}", f"{name} has no text")
            want(rule.get("defaultConfiguration", {}).get("level", "warning") in LEVELS, where, "a level is unknown")
        bases = run.get("originalUriBaseIds", {})
        for name, base in bases.items():
            want(base.get("uri", "").endswith("/") and urllib.parse.urlparse(base["uri"]).scheme == "file", where,
                 f"the base {name} is {base.get('uri')!r}")
        for invocation in run.get("invocations", []):
            want(isinstance(invocation.get("executionSuccessful"), bool), where, "an invocation says no success")
        results = typed(run, "results", list, where) or []
        for j, value in enumerate(results):
            result(value, rules, bases, f"{where}.results[{j}]")
    return found
