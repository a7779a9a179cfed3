#!/usr/bin/env python3
"""Units, examples, container recipe and manifest use only words that the program knows, and agree with each other.
Prints TAP.

    files_test.py SOURCE, with IDEM_EXE in the environment
"""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import plain  # pylint: disable=wrong-import-position
import shop as shops  # pylint: disable=wrong-import-position
import units  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position
from units import read  # pylint: disable=wrong-import-position

try:
    import yaml
except ImportError:
    yaml = None

SOURCE = sys.argv.pop(1)
IDEM = os.environ["IDEM_EXE"]
UNITS = SOURCE + "/contrib/systemd"
EXAMPLES = {"gateway": "gateway-shop", "consume": "consume-orders", "run": "run-report"}
FLAG = re.compile(r"^  (?:-[a-zA-Z], )?(--[a-z0-9-]+)", re.M)


def check_flags(words):
    """Checks that the command knows each flag of idem COMMAND --flag..., up to a lone --."""
    command, words = words[1], words[2:]
    known = set(FLAG.findall(plain.run(IDEM, "help", command)))
    said = {word for word in words[:words.index("--") if "--" in words else None] if word.startswith("--")}
    check(said and said <= known, f"idem {command} does not know {said - known}")


def recipe(word):
    """Returns the arguments of the last instruction with this word in the container's recipe."""
    text = read(SOURCE + "/contrib/container/Dockerfile").replace("\\\n", " ")
    return re.findall(rf"^{word} +(.*)$", text, re.M)[-1]


def manifest():
    if yaml is None:
        raise plain.Skip("Python has no yaml (Debian: python3-yaml)")
    with open(SOURCE + "/contrib/kubernetes/sidecar.yaml", encoding="utf-8") as file:
        return {part["kind"]: part for part in yaml.safe_load_all(file)}


def sidecar():
    pod = manifest()["Deployment"]["spec"]["template"]["spec"]
    return pod, next(one for one in pod["containers"] if one["name"] == "idem")


@contextlib.contextmanager
def nothing():
    yield None


@test
def systemd_accepts_the_units(_):
    if not shutil.which("systemd-analyze"):
        raise plain.Skip("systemd-analyze is not there (Debian: systemd)")
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for path in glob.glob(UNITS + "/*"):
            names.append(f"{folder}/{os.path.basename(path)}".replace("@.", "@x."))
            with open(names[-1], "w", encoding="utf-8") as file:
                file.write(read(path).replace("/usr/bin/idem", IDEM))
        said = plain.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *sorted(names), status=None)
        told = [line for line in said.splitlines() if folder in line or "idem-" in line]
        check(len(names) == 4 and not told, "\n".join(told))


@test
def units_run_what_idem_understands_with_the_examples(_):
    for name, example in EXAMPLES.items():
        unit = read(f"{UNITS}/idem-{name}@.service")
        check(f"EnvironmentFile=/etc/idem/{name}/%i.conf" in unit, name)
        values = {**units.defaults(unit), **units.settings(read(f"{SOURCE}/contrib/examples/{example}.conf"))}
        check_flags(units.words_of(unit, values))
        check(values["IDEM_STORE"] == "lmdb:/var/lib/idem/%i" and "StateDirectory=idem/%i" in unit, "the store")
        for word in ("User=idem", "NoNewPrivileges=yes", "ProtectSystem=strict", "UMask=0077", "KillMode=mixed"):
            check(f"\n{word}\n" in unit, f"{name}: {word}")


@test
def the_examples_in_the_units_are_understood(_):
    for name in EXAMPLES:
        unit = read(f"{UNITS}/idem-{name}@.service")
        shown = dict(re.findall(r"^#   ([A-Z_]+)=(.*)$", unit, re.M))
        check_flags(units.words_of(unit, {**units.defaults(unit), **shown}))


@test
def the_container_runs_what_idem_understands(_):
    words = json.loads(recipe("ENTRYPOINT"))
    check_flags(words)
    check(words[words.index("--listen") + 1] == "*:" + recipe("EXPOSE"), words)
    check(f"http://127.0.0.1:{recipe('EXPOSE')}/idem/status" in recipe("HEALTHCHECK"), "the port")
    check(recipe("ENV") == f"IDEM_STORE=lmdb:{recipe('VOLUME')}/store", "the store is in the volume")
    user = recipe("USER").split(":")[0]
    check(user.isdigit() and int(user) > 0 and f"install -d -o {user} -g {user} -m 0700 {recipe('VOLUME')}" in
          recipe("RUN"), "whose volume")
    for copied in re.findall(r"^COPY (\S+) /etc", read(SOURCE + "/contrib/container/Dockerfile"), re.M):
        check(os.path.exists(f"{SOURCE}/{copied}"), copied)


@test
def the_manifest_agrees_with_the_container(_):
    pod, one = sidecar()
    check_flags(json.loads(recipe("ENTRYPOINT")) + one["args"])
    check([port["containerPort"] for port in one["ports"]] == [int(recipe("EXPOSE"))], one["ports"])
    for probe in ("readinessProbe", "livenessProbe"):
        check(json.loads(recipe("HEALTHCHECK").split("CMD ")[1]) == one[probe]["exec"]["command"], probe)
    store = {row["name"]: row["value"] for row in one["env"]}["IDEM_STORE"]
    mounts = {row["name"]: row["mountPath"] for row in one["volumeMounts"]}
    check(store == recipe("ENV").split("=", 1)[1] and mounts["idem"] == recipe("VOLUME"), (store, mounts))
    check(mounts.keys() == {row["name"] for row in pod["volumes"]} and "/tmp" in mounts.values(), mounts)
    user = int(recipe("USER").split(":")[0])
    check((one["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (user, user), "the user")


@test
def the_manifest_keeps_one_pod_to_one_embedded_store(_):
    parts = manifest()
    claim, deployment = parts["PersistentVolumeClaim"], parts["Deployment"]["spec"]
    check((deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate"), deployment)
    check(claim["spec"]["accessModes"] == ["ReadWriteOncePod"], claim)
    volume = next(one for one in deployment["template"]["spec"]["volumes"] if one["name"] == "idem")
    check(volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"], volume)
    labels = deployment["template"]["metadata"]["labels"]
    check(parts["Service"]["spec"]["selector"] == labels == deployment["selector"]["matchLabels"], labels)
    _, one = sidecar()
    check(parts["Service"]["spec"]["ports"][0]["targetPort"] == one["ports"][0]["name"], "the service's port")
    check(one["resources"]["limits"] and one["resources"]["requests"], "resources")


@test
def the_gateway_starts_as_container_and_manifest_say(_):
    _, one = sidecar()
    with tempfile.TemporaryDirectory() as folder, shops.opened() as shop:
        os.chmod(folder, 0o755)
        port = shops.free_port()
        words = json.loads(recipe("ENTRYPOINT")) + one["args"]
        swap = {"/usr/bin/idem": IDEM, "*:" + recipe("EXPOSE"): f"127.0.0.1:{port}",
                "/etc/idem/status.conf": SOURCE + "/contrib/container/status.conf",
                "http://127.0.0.1:9000": f"http://127.0.0.1:{shop.port}"}
        check(swap.keys() <= set(words), words)
        with subprocess.Popen([swap.get(word, word) for word in words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              env={**os.environ, "IDEM_STORE": f"lmdb:{folder}/store"}) as gateway:
            try:
                if not shops.listens(port, gateway) and gateway.poll() == 127:
                    raise plain.Skip("nginx or its module is not there")
                shops.check_once(shop, gateway, port, "k")
                check(b"idem_" in shops.get(port, "/idem/status"), "the status")
            finally:
                gateway.terminate()


@test
def the_package_has_what_its_book_links_to(_):
    said = re.search(r"foreach page : \[(.*?)\]", read(SOURCE + "/man/meson.build"), re.S).group(1)
    book = set(re.findall(r"'([\w-]+)'", said))
    examples = {row.removesuffix("/*") for row in read(SOURCE + "/debian/idem.examples").split()}
    for page in book:
        text = read(f"{SOURCE}/docs/{page}.md")
        missing = set(re.findall(r"\]\(([\w-]+)\.md[)#]", text)) - book
        check(not missing, f"{page}.md: {missing}")
        missing = set(re.findall(r"\]\(\.\./(contrib/[\w-]+)/", text)) - examples - {"contrib/systemd"}  # units
        check(not missing, f"{page}.md: {missing}")
    check("dh_compress -X.md\n" in read(SOURCE + "/debian/rules"), "links lead to .md, and not to .md.gz")


@test
def packages_are_named_by_the_library(_):
    meson = read(SOURCE + "/src/meson.build")
    soversion = re.search(r"soversion: '(.*?)'", meson).group(1)
    check(f"\nPackage: libidem{soversion}\n" in read(SOURCE + "/debian/control"), soversion)
    check(os.path.exists(f"{SOURCE}/debian/libidem{soversion}.install"), soversion)


@test
def the_version_stands_in_one_place(_):
    version = re.search(r"version: '(.*?)'", read(SOURCE + "/meson.build")).group(1)
    check(not os.path.exists(SOURCE + "/debian/changelog"), "tools/deb writes it")
    for path in glob.glob(SOURCE + "/debian/*") + [SOURCE + "/tools/deb", SOURCE + "/Makefile"]:
        check(os.path.isdir(path) or version not in read(path), path)


plain.main(nothing)
