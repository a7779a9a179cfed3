#!/usr/bin/env python3
"""The module in nginx's own build, with the nginx source that Debian ships: as a dynamic module with every
store, and compiled in with one. Prints TAP.

    nginx_test.py SOURCE
"""
import contextlib
import glob
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import plain  # pylint: disable=wrong-import-position
import shop as shops  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position

SOURCE = sys.argv.pop(1)
CONF = """%s
user root;
daemon off;
events {
}
http {
    access_log off;
    server {
        listen 127.0.0.1:%d;
        location / {
            proxy_pass http://127.0.0.1:%d;
            idem        replay;
            idem_store  lmdb:%s/store;
            idem_prefix order:;
            idem_scope  $http_x_user;
        }
    }
}
"""


def apt(folder, *words):
    """apt-get with lists of its own: most machines have none of sources."""
    settings = {"Dir::Etc::SourceList": folder + "/sources.list", "Dir::Etc::SourceParts": folder + "/none",
                "Dir::State::Lists": folder + "/lists", "APT::Sandbox::User": "root"}
    plain.run("apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items()), *words, cwd=folder)


def nginx_source(folder):
    """Debian's nginx, unpacked and patched."""
    if not shutil.which("apt-get"):
        raise plain.Skip("this is no Debian")
    rows = plain.run("apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
                     "Created-By: Packages").split("\n")
    wanted = {tuple(row.split("|")[1:]) for row in rows if row.startswith("Debian|")}
    if not wanted:
        raise plain.Skip("apt has no lists of Debian's packages (apt-get update)")
    os.makedirs(folder + "/lists/partial")
    with open(folder + "/sources.list", "w", encoding="utf-8") as file:
        file.writelines(f"deb-src {' '.join(row)}\n" for row in sorted(wanted))
    apt(folder, "update")
    apt(folder, "source", "nginx")
    return glob.glob(folder + "/nginx-*/")[0]


class Build:
    def __init__(self, folder, source):
        self.folder, self.source, self.shop = folder, source, None

    def configure(self, how, objs, status=0, **env):
        return plain.run("./configure", f"--builddir={objs}", f"--prefix={self.folder}/prefix", "--with-cc-opt=-O0",
                         f"{how}={SOURCE}/src/http", cwd=self.source, status=status, env={**os.environ, **env})

    def make(self, objs):
        plain.run("make", "-f", f"{objs}/Makefile", "-j2", "binary", "modules", cwd=self.source)

    def order(self, objs, load):
        """An order through what was built."""
        place, port = f"{self.folder}/{objs}", shops.free_port()
        os.makedirs(place + "/logs")
        with open(place + "/nginx.conf", "w", encoding="utf-8") as file:
            file.write(CONF % (load, port, self.shop.port, place))
        nginx = [f"{self.source}/{objs}/nginx", "-p", place, "-c", place + "/nginx.conf"]
        plain.run(*nginx, "-t")
        with subprocess.Popen(nginx) as process:
            try:
                shops.check_once(self.shop, process, port, objs)
            finally:
                process.terminate()


@contextlib.contextmanager
def build():
    with tempfile.TemporaryDirectory() as folder:
        made = Build(folder, nginx_source(folder))
        with shops.opened() as made.shop:
            yield made


@test
def a_dynamic_module_is_built_and_loaded(made):
    said = made.configure("--add-dynamic-module", "dynamic")
    check("stores: lmdb redis postgres mysql\n" in said, said)
    made.make("dynamic")
    module = made.source + "/dynamic/ngx_http_idem_module.so"
    shown = {line.split()[-1] for line in plain.run("nm", "-D", "--defined-only", module).splitlines()}
    check(shown == {"ngx_modules", "ngx_module_names", "ngx_module_order"}, shown)
    made.order("dynamic", f"load_module {module};")


@test
def a_store_may_be_chosen_and_the_module_compiled_in(made):
    said = made.configure("--add-module", "static", IDEM_STORES="lmdb")
    check("stores: lmdb\n" in said, said)
    made.make("static")
    needs = plain.run("ldd", made.source + "/static/nginx")
    check("liblmdb" in needs and "libpq" not in needs and "libmariadb" not in needs, needs)
    made.order("static", "")


@test
def a_store_that_cannot_be_had_is_said(made):
    said = made.configure("--add-module", "none", status=1, IDEM_STORES="lmdb oracle")
    check("a store that cannot be had here: oracle" in said, said)


plain.main(build)
