"""Idem installed in a directory of its own, for tests from a user's side."""
import os
import subprocess


def files_of(folder):
    return {os.path.relpath(os.path.join(at, name), folder)
            for at, _, names in os.walk(folder) for name in names}


class Installed:
    """The files installed under `destdir`, whose final place is `prefix`."""

    def __init__(self, destdir, prefix):
        self.destdir, self.prefix = destdir, destdir + prefix
        self.files = files_of(destdir)
        pc = [name for name in self.files if name.endswith("/pkgconfig/idem.pc")]
        self.libraries = os.path.join(destdir, os.path.dirname(os.path.dirname(pc[0]))) if pc else self.prefix + "/lib"

    def environment(self, folder):
        """The environment of a user of this installation who works in `folder`."""
        env = {**os.environ, "HOME": folder, "IDEM_STORE": "lmdb:" + folder + "/store"}
        env["IDEM_AUDIT"] = folder + "/audit"
        env["IDEM_NGINX_MODULE"] = self.libraries + "/nginx/modules/ngx_http_idem_module.so"
        env["PATH"] = self.prefix + "/bin:" + env["PATH"]
        env["PKG_CONFIG_SYSROOT_DIR"] = self.destdir
        env["PKG_CONFIG_PATH"] = self.libraries + "/pkgconfig"
        env["LD_LIBRARY_PATH"] = self.libraries
        return env

    def sh(self, command, folder):
        return subprocess.run(["sh", "-c", command], cwd=folder, env=self.environment(folder),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300, text=True)


def from_build(build, root):
    """Installs a build directory without compiling anything."""
    destdir = root + "/destdir"
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", destdir], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return Installed(destdir, "/usr/local")
