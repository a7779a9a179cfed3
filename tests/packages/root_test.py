#!/usr/bin/env python3
"""The Debian packages, from a user's side: built by `make deb`, installed into a clean root with their dependencies,
used there, installed again, purged. Prints TAP.

    root_test.py SOURCE
"""
import contextlib
import glob
import os
import re
import shlex
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.append(os.path.join(sys.path[0], "docs"))
import hardening  # pylint: disable=wrong-import-position
import paste  # pylint: disable=wrong-import-position
import plain  # pylint: disable=wrong-import-position
import root  # pylint: disable=wrong-import-position
import shop as shops  # pylint: disable=wrong-import-position
import units  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position
from units import read  # pylint: disable=wrong-import-position
from waiting import LIMIT  # pylint: disable=wrong-import-position

SOURCE = sys.argv.pop(1)
PACKAGES = ["libidem0.1", "libidem-dev", "idem", "libnginx-mod-http-idem"]
AS_IDEM = "setpriv --reuid=idem --regid=idem --clear-groups "
LINK = "/etc/nginx/modules-enabled/50-mod-http-idem.conf"
EXAMPLES = "/usr/share/doc/idem/examples"


def files_of(folder):
    """Without git and builds, in which other processes may be at work."""
    found = set()
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders
                      if name not in (".git", "__pycache__") and not os.path.exists(f"{at}/{name}/build.ninja")]
        found.update(os.path.join(at, name) for name in names)
    return found


def version():
    return re.search(r"version: '(.*?)'", read(SOURCE + "/meson.build")).group(1)


@contextlib.contextmanager
def installed():
    with tempfile.TemporaryDirectory() as folder, root.make(folder + "/root") as system, \
            shops.opened() as system.shop:
        system.source_before = files_of(SOURCE)
        env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        plain.run("make", "-s", "deb", "DIST=" + folder + "/dist", cwd=SOURCE, env=env)
        os.mkdir(system.path("/packages"))
        machine = plain.run("dpkg", "--print-architecture").strip()
        for name in PACKAGES:
            shutil.copy(f"{folder}/dist/{name}_{version()}_{machine}.deb", system.path("/packages"))
        system.before = system.find("idem")
        yield system


@contextlib.contextmanager
def running(system, script):
    with open(system.path("/tmp/log"), "w+b") as log:
        process = system.start("exec " + script, stdout=log, stderr=log)
        try:
            yield process
        except AssertionError as error:
            log.seek(0)
            raise AssertionError(f"{error}\n{log.read().decode('utf-8', 'replace')}") from error
        finally:
            process.terminate()
            process.wait(LIMIT)


@test
def make_deb_leaves_the_source_alone(system):
    check(files_of(SOURCE) == system.source_before, files_of(SOURCE) ^ system.source_before)


@test
def the_packages_install_with_what_they_depend_on(system):
    system.sh("apt-get install -y --no-install-recommends nginx /packages/*.deb")
    check(system.sh("idem --version").strip() == "idem " + version(), "the version")
    wrong = system.sh(f"dpkg --verify {' '.join(PACKAGES)}")
    check(not wrong.strip(), wrong)


@test
def what_is_installed_is_hardened(system):
    """Debian's own flags are weaker."""
    paths = [path for name in ("/usr/bin/idem", "/usr/lib/*/libidem.so.*", "/usr/lib/*/libidem.a",
                               "/usr/lib/nginx/modules/ngx_http_idem_module.so") for path in glob.glob(system.path(name))]
    found = {path: hardening.lacks(path) for path in map(os.path.realpath, paths)}
    check(len(found) == 4 and not any(found.values()), found)


@test
def a_command_runs_once(system):
    run = "idem run --key k -- sh -c 'echo x >>/tmp/ran; date +%N'"
    first, second = system.sh(run), system.sh(run)
    check(first == second and read(system.path("/tmp/ran")) == "x\n", (first, second))


@test
def the_services_user_has_no_say_over_roots_store(system):
    check(system.sh(AS_IDEM + "touch /var/lib/idem/x 2>&1", status=1), "root's directory")
    check("denied" in system.sh(AS_IDEM + "cat /var/lib/idem/data.mdb 2>&1", status=1), "root's store")


@test
def nginx_loads_the_module_and_an_order_happens_once(system):
    check(os.path.islink(system.path(LINK)), "the snippet is not enabled")
    system.sh("nginx -t")
    port = shops.free_port()
    text = read(system.path(EXAMPLES + "/nginx-shop.conf"))
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("127.0.0.1:9000",
                                                                     f"127.0.0.1:{system.shop.port}")
    system.write("/etc/nginx/conf.d/shop.conf", text)
    system.sh("rm -f /etc/nginx/sites-enabled/default; nginx -t")
    with running(system, "nginx -g 'daemon off;'") as nginx:
        shops.check_once(system.shop, nginx, port, "by-nginx")
    check("www-data" in system.sh("stat -c %U /var/lib/nginx/idem/shop"), "whose store")


@test
def every_configuration_of_the_documents_answers_where_it_is_pasted(system):
    """With the packages nothing loads the module but their own snippet, and the directory of the stores is there already."""
    system.sh("apt-get install -y --no-install-recommends curl openssl redis-server postgresql")
    system.sh("cp /etc/nginx/nginx.conf /packages/nginx.conf")
    wrong = []
    for page, path, text, commands in paste.of_pages(SOURCE):
        system.sh("rm -rf /etc/nginx/conf.d/*.conf /tmp/* /var/lib/nginx/idem/*; cp /packages/nginx.conf /etc/nginx/nginx.conf")
        found = paste.verdict(path, system.sh(paste.script(path, text, commands), alone=True, status=None))
        wrong += [f"{page}: {found}"] if found else []
    system.sh("rm -f /etc/nginx/conf.d/*.conf; cp /packages/nginx.conf /etc/nginx/nginx.conf")
    check(not wrong, "\n".join(wrong))


@test
def the_gateway_starts_as_its_unit_says(system):
    port = shops.free_port()
    values = units.settings(read(system.path(EXAMPLES + "/gateway-shop.conf")))
    values.update(LISTEN=f"127.0.0.1:{port}", UPSTREAM=f"http://127.0.0.1:{system.shop.port}")
    unit = read(system.path("/lib/systemd/system/idem-gateway@.service"))
    system.sh("install -d -o idem -g idem -m 0700 /var/lib/idem/shop")
    with running(system, AS_IDEM + "env IDEM_STORE=lmdb:/var/lib/idem/shop " +
                 shlex.join(units.words_of(unit, values))) as gateway:
        shops.check_once(system.shop, gateway, port, "by-the-gateway")


@test
def a_job_runs_once_as_its_unit_says(system):
    values = units.settings(read(system.path(EXAMPLES + "/run-report.conf")))
    values["COMMAND"] = "tee -a /var/lib/idem/report/ran"
    unit = read(system.path("/lib/systemd/system/idem-run@.service")).replace("%i", "report")
    system.sh("install -d -o idem -g idem -m 0700 /var/lib/idem/report")
    command = AS_IDEM + "env IDEM_STORE=lmdb:/var/lib/idem/report " + shlex.join(units.words_of(unit, values))
    said = system.sh(f"echo x | {command}; echo x | {command}")
    ran = read(system.path("/var/lib/idem/report/ran"))
    check((ran == "x\n" and "duplicate" in said) or ran == "x\nx\n", said)  # two, if an hour began between them


@test
def a_program_is_compiled_against_the_library(system):
    system.sh("apt-get install -y --no-install-recommends gcc libc6-dev pkg-config")
    program = re.search(r"```c\n(/\* order.c \*/.*?)```", read(SOURCE + "/docs/library.md"), re.S).group(1)
    system.write("/tmp/c/order.c", program)
    said = system.sh("cd /tmp/c; cc -o order order.c $(pkg-config --cflags --libs idem); ./order; ./order; ldd order")
    check("run: order 4711 placed\nreplay: order 4711 placed\n" in said and "libidem.so.0.1" in said, said)
    said = system.sh("cd /tmp/c; cc -o order order.c $(pkg-config --cflags idem) "
                     "$(pkg-config --static --libs idem | sed s/-lidem/-l:libidem.a/); ./order; ldd order")
    check("replay: order 4711 placed\n" in said and "libidem" not in said, said)


@test
def the_manuals_are_there(system):
    for name in ("man1/idem.1.gz", "man5/idem.conf.5.gz", "man3/libidem.3.gz"):
        # dpkg may be configured to leave manuals out; the packages contain them.
        check(name in system.sh("for p in /packages/*.deb; do dpkg-deb -c $p; done"), name)


@test
def installed_again_it_remembers_and_stays_off_where_it_was_switched_off(system):
    system.sh(f"rm {LINK}")
    system.sh("apt-get install -y --reinstall /packages/*.deb")
    check(not os.path.lexists(system.path(LINK)), "the module was enabled again")
    check("done" in system.sh("idem show k --prefix run: --scope none"), "it was forgotten")
    system.sh(f"ln -s /usr/share/nginx/modules-available/mod-http-idem.conf {LINK}")


@test
def removed_nginx_still_starts_and_what_is_known_stays(system):
    system.sh("rm /etc/nginx/conf.d/shop.conf; apt-get remove -y " + " ".join(PACKAGES))
    system.sh("nginx -t")
    check(os.path.exists(system.path("/var/lib/idem/data.mdb")), "the store has gone")


@test
def purged_nothing_is_left(system):
    system.sh("dpkg --purge " + " ".join(PACKAGES) + "; nginx -t; rm -rf /packages /tmp/c")
    left = system.find("idem") - system.before
    check(not left, left)


plain.main(installed)
