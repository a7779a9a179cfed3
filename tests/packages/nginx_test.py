#!/usr/bin/env python3
"""The module in nginx's own build (src/nginx/config). Prints TAP.

    nginx_test.py SOURCE installed    with the source in Debian's nginx-dev: a dynamic module for the nginx that
                                      is installed
    nginx_test.py SOURCE fetched      with the source package that Debian ships, which is fetched: as a dynamic
                                      module with every store, and compiled in with one
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
import hardening  # pylint: disable=wrong-import-position
import plain  # pylint: disable=wrong-import-position
import shop as shops  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position

SOURCE, WHICH = sys.argv.pop(1), sys.argv.pop(1)
INSTALLED = "/usr/share/nginx/src"
# The test needs no root, so an ordinary user can run it, too.
CONF = "%s\n" + ("user root;" if os.geteuid() == 0 else "") + """
daemon off;
pid       logs/nginx.pid;
error_log logs/error.log;
events {
}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path       proxy;
    fastcgi_temp_path     fastcgi;
    uwsgi_temp_path       uwsgi;
    scgi_temp_path        scgi;
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
    """apt-get with lists of its own, because most machines have no lists of sources."""
    settings = {"Dir::Etc::SourceList": folder + "/sources.list", "Dir::Etc::SourceParts": folder + "/none",
                "Dir::State::Lists": folder + "/lists", "APT::Sandbox::User": "root"}
    plain.run("apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items()), *words, cwd=folder)


def nginx_installed(folder):
    """Copies the source of nginx-dev, which has no Makefile and no flags."""
    if not os.path.exists(INSTALLED + "/configure"):
        raise plain.Skip("nginx-dev has no source here")
    shutil.copytree(INSTALLED, folder + "/nginx")
    return folder + "/nginx/"


def nginx_fetched(folder):
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

    def configure(self, how, objs, *flags, status=0, **env):
        return plain.run("./configure", f"--builddir={objs}", f"--prefix={self.folder}/prefix", "--with-cc-opt=-O0",
                         *flags, f"{how}={SOURCE}/src/nginx", cwd=self.source, status=status, env={**os.environ, **env})

    def make(self, objs, *what):
        plain.run("make", "-f", f"{objs}/Makefile", "-j2", *what, cwd=self.source)

    def order(self, objs, load, nginx=None):
        """Sends an order through the module."""
        place, port = f"{self.folder}/{objs}", shops.free_port()
        os.makedirs(place + "/logs")
        with open(place + "/nginx.conf", "w", encoding="utf-8") as file:
            file.write(CONF % (load, port, self.shop.port, place))
        nginx = [nginx or f"{self.source}/{objs}/nginx", "-p", place, "-c", place + "/nginx.conf"]
        plain.run(*nginx, "-t")
        with subprocess.Popen(nginx) as process:
            try:
                shops.check_once(self.shop, process, port, objs)
            finally:
                process.terminate()


@contextlib.contextmanager
def build():
    with tempfile.TemporaryDirectory() as folder:
        made = Build(folder, (nginx_installed if WHICH == "installed" else nginx_fetched)(folder))
        with shops.opened() as made.shop:
            yield made


def fetched(body):
    """Marks a test that needs the whole source of nginx."""
    return test(body) if WHICH == "fetched" else body


def installed(body):
    return test(body) if WHICH == "installed" else body


@installed
def the_nginx_that_is_installed_loads_a_module_of_nginx_s_own_build(made):
    flags = plain.run("bash", "-c", '. ./conf_flags; printf "%s\\n" "${NGX_CONF_FLAGS[@]}"', cwd=made.source).split()
    said = made.configure("--add-dynamic-module", "dynamic", *flags, IDEM_STORES="lmdb redis")
    check("stores: lmdb redis\n" in said, said)
    made.make("dynamic", "modules")
    lacks = hardening.lacks(made.source + "/dynamic/ngx_http_idem_module.so", fortified=False)  # it is not optimised
    check(not lacks, lacks)
    with open(made.source + "/dynamic/Makefile", encoding="ascii") as file:
        check(f"-include {SOURCE}/src/fortify.h" in file.read(), "every file begins with it")
    shown = plain.run("cc", "-O1", "-D_FORTIFY_SOURCE=2", "-include", SOURCE + "/src/fortify.h", "-E", "-dM",
                      f"-I{SOURCE}/src", f"-I{SOURCE}/include", SOURCE + "/src/base/error.c")
    check("#define __USE_FORTIFY_LEVEL 3\n" in shown, "the level of checks")
    made.order("dynamic", f"load_module {made.source}/dynamic/ngx_http_idem_module.so;",
               shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"))


@fetched
def a_dynamic_module_is_built_and_loaded(made):
    said = made.configure("--add-dynamic-module", "dynamic")
    check("stores: lmdb redis postgres mysql\n" in said, said)
    made.make("dynamic", "binary", "modules")
    module = made.source + "/dynamic/ngx_http_idem_module.so"
    shown = {line.split()[-1] for line in plain.run("nm", "-D", "--defined-only", module).splitlines()}
    check(shown == {"ngx_modules", "ngx_module_names", "ngx_module_order"}, shown)
    made.order("dynamic", f"load_module {module};")


@fetched
def a_store_may_be_chosen_and_the_module_compiled_in(made):
    said = made.configure("--add-module", "static", IDEM_STORES="lmdb")
    check("stores: lmdb\n" in said, said)
    made.make("static", "binary", "modules")
    needs = plain.run("ldd", made.source + "/static/nginx")
    check("liblmdb" in needs and "libpq" not in needs and "libmariadb" not in needs, needs)
    made.order("static", "")


@fetched
def a_store_that_cannot_be_had_is_said(made):
    said = made.configure("--add-module", "none", status=1, IDEM_STORES="lmdb oracle")
    check("a store that cannot be had here: oracle" in said, said)


plain.main(build)
