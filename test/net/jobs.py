#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The jobs of examples/launch, started as their heads say, with ranks on simulated GPUs: a plan of four ranks, whose
# elements are compared.
#
#   jobs.py --jobs=FOLDER --plan=PROGRAM --file=PLAN [--python=PATH] [CLASS...]
#
# --python: of an environment that has PyTorch's torchrun or kubernetes-validate, where this one has not.
# SLURM is a controller and two nodes of its own on this machine, which ask for no other service. 77 where a launcher is
# missing, which is said.
"""Tests of the example jobs."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from namespaces import Case, clean_environment, option, why_not

LIMIT = 240   # seconds that one job may take; each agent of torchrun loads PyTorch
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"   # where Debian has a controller


def job(name):
    return os.path.join(option("jobs"), name)


def program():
    return [option("plan"), "run", option("file"), "--device=sim", "--size=4K", "--iterations=3"]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Job(Case):
    limit = LIMIT

    def right(self, status, text):
        self.assertEqual(status, 0, text)
        self.assertIn(f"right: {4 * 2 * 1024} elements compared", text)

    def run_job(self, *arguments, **environment):
        result = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                timeout=LIMIT, env={**clean_environment(), **environment})
        return result.returncode, result.stdout


class OpenMpi(Job):
    lacks = "mpirun"

    def test_two_ranks_of_a_host_each_in_turn(self):
        with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
            hosts.write("# of the test\nlocalhost slots=4\n")
            hosts.flush()
            environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                           "MSCCLPP_MASTER_PORT": str(free_port())}
            self.right(*self.run_job(job("openmpi.sh"), hosts.name, *program(), **environment))
            # What a rank ends with, the job does.
            status, text = self.run_job(job("openmpi.sh"), hosts.name, "sh", "-c", "exit 3", **environment)
            self.assertEqual(status, 3, text)


class Torchrun(Job):
    lacks = "torchrun"

    def test_two_hosts_of_two(self):
        hosts = self.hosts(2)
        ranks = [hosts.start(number, job("torchrun.sh"), "2", str(number), hosts.addresses[0], *program(),
                             RANKS_PER_HOST="2", PATH=PATH) for number in range(2)]
        for i, (status, text) in enumerate(self.finish(ranks)):
            self.assertEqual(status, 0, text)
            if i == 0:
                self.right(status, text)


class Kubernetes(Job):
    """Its pods are network namespaces."""

    VALIDATE = """
import json, sys
try:
    import kubernetes_validate, yaml
except ImportError as error:
    sys.exit(f"lacks {error.name}")
parts = list(yaml.safe_load_all(open(sys.argv[1])))
if len(sys.argv) > 2:
    parts[-1]["spec"]["template"]["spec"]["containers"][0][sys.argv[2]] = "?"
for part in parts:
    kubernetes_validate.validate(part, kubernetes_validate.latest_version(), strict=True)
print(json.dumps(parts))
"""

    def read(self, *spoilt):
        """Its parts, by the schemas of Kubernetes; with a container's field spoilt, what these say of it."""
        for python in (sys.executable, option("python")):
            if python is None or not os.access(python, os.X_OK):
                continue
            result = subprocess.run([python, "-c", self.VALIDATE, job("kubernetes.yaml"), *spoilt], capture_output=True,
                                    text=True, check=False)
            if result.stderr.startswith("lacks "):
                continue
            if spoilt:
                return result.stderr
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout)
        return self.skipTest("no kubernetes-validate here; pip install kubernetes-validate")

    def test_the_schemas_of_kubernetes_accept_it(self):
        service, indexed = self.read()
        self.assertIn("'imagee' was unexpected", self.read("imagee"))
        spec = indexed["spec"]
        pod = spec["template"]["spec"]
        container, = pod["containers"]
        values = {each["name"]: each.get("value") for each in container["env"]}
        # What must be the same in several places.
        self.assertEqual(service["spec"]["selector"], {"job-name": indexed["metadata"]["name"]})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual(values["MSCCLPP_MASTER_ADDR"], f"{indexed['metadata']['name']}-0.{pod['subdomain']}")
        self.assertEqual(int(values["PODS"]), spec["completions"])
        self.assertEqual(spec["parallelism"], spec["completions"])
        self.assertEqual(int(values["RANKS_PER_POD"]), container["resources"]["limits"]["nvidia.com/gpu"])

    def pods(self, arguments, **environment):
        """Exit statuses and texts of its two pods, of two ranks each."""
        container, = self.read()[1]["spec"]["template"]["spec"]["containers"]
        values = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        hosts = self.hosts(2)
        # Names of pods are the cluster's.
        values.update(environment, RANKS_PER_POD="2", MSCCLPP_MASTER_ADDR=hosts.addresses[0])
        return self.finish([hosts.start(pod, *container["command"], *arguments, JOB_COMPLETION_INDEX=str(pod), **values)
                            for pod in range(2)])

    def test_its_pods_run_the_ranks(self):
        results = self.pods(program())
        self.right(*results[0])
        self.assertEqual(results[1][0], 0, results[1][1])

    def test_a_pod_fails_with_its_rank(self):
        results = self.pods(["sh", "-c", "[ $MSCCLPP_RANK != 2 ] || exit 3"])
        self.assertEqual([status for status, _ in results], [0, 3], results)


class Slurm(Job):
    """Two nodes of eight GPUs each, of one controller; they are this machine. The first one's name is one that every
    machine can look up, as nodes' names are."""

    lacks = "slurmctld"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="mscclpp-slurm-")
        cls.addClassCleanup(cls.folder.cleanup)
        home, names = cls.folder.name, ("127.0.0.1", "node2")
        text = f"""
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={free_port()}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={home}
SlurmdSpoolDir={home}/%n
SlurmctldPidFile={home}/controller.pid
SlurmdPidFile={home}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
PartitionName=test Nodes=ALL Default=YES
"""
        for name in names:
            os.mkdir(os.path.join(home, name))
            text += (f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs=64 "
                     "RealMemory=1000 Gres=gpu:8\n")
        cls.write("slurm.conf", text)
        # Files that are there pass for GPUs; it complains of them in its log.
        for gpu in range(8):
            cls.write(f"gpu{gpu}", "")
        cls.write("gres.conf", f"NodeName={','.join(names)} Name=gpu File={home}/gpu[0-7]\n")
        cls.environment = {**clean_environment(), "PATH": PATH, "SLURM_CONF": os.path.join(home, "slurm.conf")}
        cls.start("slurmctld", "-D")
        for name in names:
            cls.start("slurmd", "-D", "-N", name)
        end = time.monotonic() + 60
        while cls.run_slurm("sinfo", "--noheader", "--format=%t")[1].split() != ["idle"]:
            if time.monotonic() > end:
                with open(os.path.join(home, "log"), encoding="utf-8") as log:
                    raise AssertionError("the nodes did not come up: " + log.read())
            time.sleep(0.2)

    @classmethod
    def write(cls, name, text):
        with open(os.path.join(cls.folder.name, name), "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def start(cls, *arguments):
        with open(os.path.join(cls.folder.name, "log"), "ab") as log:
            process = subprocess.Popen(arguments, env=cls.environment, stdout=log, stderr=log)

        def stop():
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        cls.addClassCleanup(stop)

    @classmethod
    def run_slurm(cls, *arguments):
        result = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                timeout=LIMIT, env=cls.environment)
        return result.returncode, result.stdout

    def test_the_controller_takes_it_as_it_is(self):
        status, text = self.run_slurm("sbatch", "--test-only", job("slurm.sh"), "true")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"using \d+ processors on nodes 127.0.0.1,node2 ")
        status, text = self.run_slurm("sbatch", "--test-only", "--gpus-per-node=9", job("slurm.sh"), "true")
        self.assertNotEqual(status, 0, text)

    def test_its_ranks_find_each_other(self):
        output = os.path.join(self.folder.name, "output")
        for nodes in (1, 2):
            status, text = self.run_slurm("sbatch", "--wait", f"--nodes={nodes}", f"--ntasks-per-node={4 // nodes}",
                                          f"--output={output}", job("slurm.sh"), *program())
            with open(output, encoding="utf-8") as file:
                text += file.read()
            self.right(status, text)

    def test_the_job_fails_with_a_rank(self):
        output = os.path.join(self.folder.name, "failure")
        status, text = self.run_slurm("sbatch", "--wait", "--ntasks-per-node=1", f"--output={output}", job("slurm.sh"),
                                      "sh", "-c", "[ $SLURM_PROCID = 0 ] && sleep 500 || exit 3")
        self.assertNotEqual(status, 0, text)


def lacking(names):
    """Why none of these classes can run; empty: they can."""
    reasons = []
    for name in names:
        tool = getattr(globals()[name], "lacks", None)
        if tool and not shutil.which(tool, path=PATH):
            reasons.append(f"no {tool} here")
        elif name in ("Torchrun", "Kubernetes") and why_not():
            reasons.append(why_not())
        elif name == "Slurm" and os.geteuid() != 0:
            reasons.append("nodes of SLURM need root")
    return "; ".join(reasons)


if __name__ == "__main__":
    if option("python"):
        PATH = f"{os.path.dirname(option('python'))}:{PATH}"
    CLASSES = [given for given in sys.argv[1:] if not given.startswith("--")]
    REASON = lacking(CLASSES)
    if REASON:
        print(f"skipped: {REASON}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *CLASSES])
