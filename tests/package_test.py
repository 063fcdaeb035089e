#!/usr/bin/env python3
"""Makes the Debian package of a build directory and looks into it: package_test.py BUILD_DIR CPACK

Nothing is installed: apt only says whether it could be."""
import pathlib
import re
import subprocess
import sys
import tempfile

build, cpack = sys.argv[1:3]
WANTED = {"usr/bin/tern": "-rwxr-xr-x",
          "usr/lib/systemd/system/tern.service": "-rw-r--r--",
          "usr/share/doc/tern/copyright": "-rw-r--r--",
          "usr/share/doc/tern/README.md": "-rw-r--r--",
          "usr/share/doc/tern/docs/serve.md": "-rw-r--r--",
          "usr/share/doc/tern/docs/deploy.md": "-rw-r--r--",
          "usr/share/doc/tern/examples/haproxy.cfg": "-rw-r--r--"}


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    run(cpack, "-G", "DEB", "--config", f"{build}/CPackConfig.cmake", "-B", folder)
    [package] = pathlib.Path(folder).glob("*.deb")

    listed = [line.split() for line in run("dpkg-deb", "-c", package).splitlines()]
    files = {line[5].removeprefix("./"): (line[0], line[1]) for line in listed}
    for path, mode in WANTED.items():
        assert files.get(path) == (mode, "root/root"), (path, files.get(path))
    strangers = [path for path in files if not re.match(r"$|usr/$|usr/(bin|lib|share)/", path)]
    assert not strangers, strangers

    depends = run("dpkg-deb", "-f", package, "Depends")
    for library in ["libc6", "libstdc++6", "libssl3", "libspdlog", "libprometheus-cpp-core"]:
        assert library in depends, depends
    plan = run("apt-get", "install", "--simulate", "--no-install-recommends", "-o", "Debug::NoLocking=1", str(package))
    assert re.search(r"(?m)^Inst tern ", plan), plan

    root = pathlib.Path(folder) / "root"
    run("dpkg-deb", "-x", package, root)
    print(run(root / "usr/bin/tern", "version").strip())
    # The unit is looked at without installing it: what it starts is that of the package.
    unit = root / "tern.service"
    text = (root / "usr/lib/systemd/system/tern.service").read_text()
    unit.write_text(text.replace("/usr/bin/tern ", f"{root}/usr/bin/tern "))
    said = [line for line in run("systemd-analyze", "--man=no", "verify", unit).splitlines() if "tern" in line]
    assert not said, said
    exposure = run("systemd-analyze", "security", "--offline=true", unit)
    score = float(re.search(r"Overall exposure level for tern.service: ([\d.]+)", exposure)[1])
    assert score < 2, exposure
