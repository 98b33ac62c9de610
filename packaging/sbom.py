#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbom.py VERSION FOLDER: prints what is in a release, as SPDX 2.3 (JSON): the files of FOLDER with their checksums, and the code of other
projects that they contain, which NOTICE lists, with the version that this machine has compiled in."""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

NOTICE = pathlib.Path(__file__).resolve().parent.parent / "NOTICE"
# The licence and Debian's package of each project in NOTICE. The last two come from PyPI, while the wheel is built.
OTHERS = {"fmt": ("MIT", "libfmt-dev"), "nlohmann-json": ("MIT", "nlohmann-json3-dev"), "CLI11": ("BSD-3-Clause", "libcli11-dev"),
          "xxHash": ("BSD-2-Clause", "libxxhash-dev"), "nanobind": ("BSD-3-Clause", None), "robin-map": ("MIT", None)}  # fmt: skip


def package(name, license_, **more):
    return {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]", "-", name), "name": name, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": license_, "licenseDeclared": license_, "copyrightText": "NOASSERTION", **more}  # fmt: skip


def main(version, folder):
    packages = [package("tandem", "Apache-2.0", versionInfo=version, supplier="Organization: The Tandem authors")]
    relations = []
    for file in sorted(pathlib.Path(folder).iterdir()):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        packages.append(package(file.name, "NOASSERTION", versionInfo=version, packageFileName=file.name,
                                checksums=[{"algorithm": "SHA256", "checksumValue": digest}]))  # fmt: skip
        relations.append(("GENERATED_FROM", packages[-1], packages[0], ""))
    listed = re.findall(r"^-{20,}\n(\S+?),? .*?\((.*)\)$", NOTICE.read_text(), re.MULTILINE)
    if {name for name, _ in listed} != set(OTHERS):
        sys.exit(f"sbom.py knows {sorted(OTHERS)}, NOTICE lists {sorted(name for name, _ in listed)}")
    for name, where in listed:
        license_, debian = OTHERS[name]
        compiled_in = {}
        if debian:
            told = subprocess.run(["dpkg-query", "--show", "--showformat=${Version}", debian], check=True, capture_output=True, text=True).stdout
            compiled_in = {"versionInfo": told, "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                                                  "referenceLocator": f"pkg:deb/debian/{debian}@{told}"}]}  # fmt: skip
        packages.append(package(name, license_, **compiled_in))
        relations.append(("CONTAINS", packages[0], packages[-1], f"in {where}"))
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    contents = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    print(json.dumps({
        "spdxVersion": "SPDX-2.3", "SPDXID": "SPDXRef-DOCUMENT", "dataLicense": "CC0-1.0", "name": f"tandem-{version}",
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, contents)}",
        "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Organization: The Tandem authors"]},
        "packages": packages,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-tandem"}] + [
            {"spdxElementId": left["SPDXID"], "relationshipType": kind, "relatedSpdxElement": right["SPDXID"], **({"comment": comment} if comment else {})}
            for kind, left, right, comment in relations],
    }, indent=1))  # fmt: skip


main(*sys.argv[1:])
