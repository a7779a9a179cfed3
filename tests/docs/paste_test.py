#!/usr/bin/env python3
"""The nginx configurations of the documents, pasted into a machine that is this one with its own /etc/nginx, /var/lib, /var/log,
/tmp and /run, its own loopback, and Idem installed as by `make install`. Prints TAP. tests/packages/root_test.py does the same with the packages, in a
clean Debian.

    paste_test.py SOURCE BUILD
"""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import installed as installs  # pylint: disable=wrong-import-position
import paste  # pylint: disable=wrong-import-position
import plain  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position

SOURCE, BUILD = sys.argv[1:3]
del sys.argv[1:3]
ETC = ["nginx.conf", "mime.types", "fastcgi_params", "uwsgi_params", "proxy_params", "conf.d", "modules-enabled", "sites-enabled"]
# $1: nginx's configuration, $2: the prefix of the installation, $3: its libraries, $4: a directory on a disk, for /var/lib/nginx: a
# store in memory would be unsafe.
ENTER = """set -e
ip link set lo up
mount --bind "$1" /etc/nginx
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /var/lib/nginx
mount --bind "$4" /var/lib/nginx
for directory in /var/log /run /tmp; do mount -t tmpfs -o mode=755 tmpfs $directory; done
chmod 1777 /tmp
mkdir /var/log/nginx
mount -t tmpfs -o mode=755 tmpfs /usr/local/share
export PATH="$2/bin:$PATH" LD_LIBRARY_PATH="$3" IDEM_NGINX_MODULE="$3/nginx/modules/ngx_http_idem_module.so"
exec sh
"""


def packaged_configuration(folder):
    """nginx's own configuration files, from the package: the machine's may have been changed."""
    for name in ETC:
        path = os.path.join("/etc/nginx", name)
        if os.path.isdir(path) or name.endswith(".d") or name.endswith("-enabled"):
            os.makedirs(os.path.join(folder, name))
        elif os.path.exists(path):
            shutil.copy(path, folder)


@contextlib.contextmanager
def machine():
    if os.geteuid() != 0:
        raise plain.Skip("only root can have a /etc/nginx of its own")
    # Where others may read: nginx's workers are another user.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.chmod(folder, 0o755)
        installed = installs.from_build(BUILD, folder)

        def pasted(script):
            with tempfile.TemporaryDirectory(dir=folder) as etc, tempfile.TemporaryDirectory(dir=BUILD) as disk:
                os.chmod(etc, 0o755)
                os.chmod(disk, 0o755)
                packaged_configuration(etc)
                done = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", etc,
                                       installed.prefix, installed.libraries, disk], input=script, text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, check=False)
                return done.stdout
        pasted.module = installed.libraries + "/nginx/modules/ngx_http_idem_module.so"
        yield pasted


def make_test(page, path, text, commands):
    def pasted_it_answers(system):
        # The command that http.md shows, for a module of one's own build.
        load = "idem gateway --upstream http://127.0.0.1:9000 --scope none --print-config | grep ^load_module " \
               ">/etc/nginx/modules-enabled/50-mod-http-idem.conf"
        own = text.replace("modules/ngx_http_idem_module.so", system.module)
        wrong = paste.verdict(path, system(paste.script(path, own, commands, load)))
        check(not wrong, wrong)
    pasted_it_answers.__name__ = f"{os.path.basename(page)}_{paste.name_of(path)}_answers_where_it_is_pasted".replace(".", "_").replace("-", "_")
    return pasted_it_answers


for example in paste.of_pages(SOURCE):
    test(make_test(*example))

plain.main(machine)
