#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What cpack makes of a build that is there: the tarball and, where dpkg is, the .deb. Unpacks each under a folder of its
own, WORK/tarball and WORK/deb, and looks at what came out.

packages.py --build=FOLDER --config=CONFIGURATION --work=FOLDER --source=FOLDER --generators=TGZ[;DEB] [--nccl]

--nccl: it has NCCL's interface.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import tarfile

import preload

COMMANDS = ("mscclpp-check", "mscclpp-doctor", "mscclpp-plan", "mscclpp-tune")


def output_of(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout.strip()


def only(pattern):
    found = glob.glob(pattern)
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


def pack(options, packed):
    """With what is compiled, in whichever way; the .deb is not compressed, which takes longest."""
    command = ["cpack", "--config", os.path.join(options.build, "CPackConfig.cmake"), "-C", options.config, "-B", packed]
    subprocess.run([*command, "-G", options.generators, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none"], check=True,
                   stdout=subprocess.DEVNULL)


def unpack_tarball(packed, prefix):
    archive = only(os.path.join(packed, "mscclpp-*.tar.gz"))
    name = os.path.basename(archive).removesuffix(".tar.gz")
    with tarfile.open(archive) as opened:
        assert all(each.split("/")[0] == name for each in opened.getnames()), f"not all in one folder {name}"
        opened.extractall(packed)
    # Under another name than the packed one: it has to work wherever it is.
    os.rename(os.path.join(packed, name), prefix)
    return prefix


def unpack_deb(packed, prefix, version):
    package = only(os.path.join(packed, f"mscclpp_{version}_*.deb"))
    fields = dict(re.findall(r"^(\S+): (.*)", output_of("dpkg-deb", "--field", package), re.MULTILINE))
    assert fields["Package"] == "mscclpp" and fields["Version"] == version, fields
    assert fields["Architecture"] == output_of("dpkg", "--print-architecture"), fields
    assert fields["Description"] and re.fullmatch(r".+ <\S+@\S+>", fields["Maintainer"]), fields
    depends = fields["Depends"].split(", ")
    assert "libboost-context-dev" in depends, depends
    if shutil.which("dpkg-shlibdeps"):
        assert any(re.fullmatch(r"libc6 \(>= .*\)", each) for each in depends), f"not what its commands load: {depends}"
    subprocess.run(["dpkg-deb", "--extract", package, prefix], check=True)
    assert os.listdir(prefix) == ["usr"], os.listdir(prefix)
    return os.path.join(prefix, "usr")


def files_in(prefix):
    return sorted(os.path.relpath(os.path.join(folder, name), prefix)
                  for folder, _, names in os.walk(prefix) for name in names)


def look_at_nccl(prefix, files):
    """It is there under both names, in a folder that ldconfig leaves alone, and a program finds it."""
    found = [name for name in files if os.path.basename(name) in ("libmscclpp_nccl.so", "libnccl.so.2")]
    folder = os.path.dirname(found[0]) if found else ""
    assert len(found) == 2 and os.path.basename(folder) == "mscclpp" and {folder} == {os.path.dirname(name) for name in found}, found
    link = os.path.join(prefix, folder, "libnccl.so.2")
    assert os.readlink(link) == "libmscclpp_nccl.so", os.readlink(link)
    for name in found:
        preload.check(os.path.join(prefix, name))


def look_at(prefix, options):
    """Nothing in it knows where it was built; its commands start, and find the profiles that came with them."""
    files = files_in(prefix)
    for name in ("include/mscclpp/version.hpp", "share/doc/mscclpp/LICENSE"):
        assert name in files, f"{name} is not among {files}"
    for name in files:
        if name.endswith(".cmake"):
            with open(os.path.join(prefix, name), encoding="utf-8") as file:
                text = file.read()
            assert options.build not in text and options.source not in text, f"{name} names the folder of the build"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSCCLPP_")}
    commands = [name for name in COMMANDS if f"bin/{name}" in files]
    for name in commands:
        output_of(os.path.join(prefix, "bin", name), "--help", env=environment)
    if "mscclpp-doctor" in commands:
        profiles = os.path.join(prefix, "share", "mscclpp", "profiles")
        assert glob.glob(os.path.join(profiles, "*.json")), f"no profile in {profiles}"
        planted = os.path.join(profiles, "planted.json")
        with open(planted, "w", encoding="utf-8") as file:
            file.write("no profile\n")
        done = subprocess.run([os.path.join(prefix, "bin", "mscclpp-doctor")], env=environment, capture_output=True,
                              text=True, check=False)
        os.remove(planted)
        assert planted in done.stdout + done.stderr, f"the profiles of {prefix} were not read:\n{done.stdout}{done.stderr}"
    if options.nccl:
        look_at_nccl(prefix, files)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("build", "config", "work", "source", "generators"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--nccl", action="store_true")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    packed = os.path.join(options.work, "packed")
    pack(options, packed)
    tarball = unpack_tarball(packed, os.path.join(options.work, "tarball"))
    files = look_at(tarball, options)
    if "DEB" in options.generators.split(";"):
        with open(os.path.join(tarball, "include", "mscclpp", "version.hpp"), encoding="utf-8") as file:
            version = re.search(r'versionText.*"(.*)"', file.read()).group(1)
        unpacked = look_at(unpack_deb(packed, os.path.join(options.work, "deb"), version), options)
        assert unpacked == files, f"in one package only: {sorted(set(unpacked) ^ set(files))}"
    shutil.rmtree(packed)


if __name__ == "__main__":
    main()
