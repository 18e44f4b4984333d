"""Prepare `.venv` from nothing but a python3: `python3 tools/venv.py`.

    python3 tools/venv.py               find an interpreter, make .venv, fill it from the hashed requirement files
    python3 tools/venv.py uv ARGUMENT…  run the uv of .venv, set up as below
    python3 tools/venv.py build         build the wheel and the source archive into dist/, in a small environment

pip fetches one thing, uv, by its hash; uv does the rest, ten times faster. Where packages come from is the machine's
business: uv is told what pip has been told (index, links, certificates), unless uv has settings of its own.

Any python3 may start this file, so it keeps to old syntax: one that is too old finds a newer one, or says what to do.
"""

import ast
import os
import shutil
import subprocess
import sys

OLDEST = (3, 11)
NEWER = ("python3.14", "python3.13", "python3.12", "python3.11")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
UV = os.path.join(VENV, "bin", "uv")
UV_PIN = os.path.join(ROOT, "requirements", "uv.txt")
DEV_PINS = os.path.join(ROOT, "requirements", "dev.txt")
# A builder needs 30 MB; `.venv`, with Spark in it, has 1.9 GB and takes no part.
BUILD_VENV = os.path.join(ROOT, "build", "venv")
BUILD_PINS = os.path.join(ROOT, "requirements", "build.txt")


def say(text):
    print("setup: " + text, flush=True)


def works(*command):
    """Whether the command runs and succeeds; what it prints is nobody's business."""
    try:
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def recent_enough(python):
    return works(python, "-c", "import sys; sys.exit(sys.version_info[:2] < {!r})".format(OLDEST))


def find_python():
    """The interpreter to build on: this one, a newer one on the PATH, or one that uv can fetch."""
    for candidate in (sys.executable, *NEWER):
        if recent_enough(candidate):
            return shutil.which(candidate) or candidate
    say("python3 is %d.%d here; looking for a newer one with uv" % sys.version_info[:2])
    shutil.rmtree(VENV, ignore_errors=True)
    if make_venv(sys.executable) and install_uv() and uv("python", "install", "--quiet", "3.13") == 0:
        answer = subprocess.run(
            [UV, "python", "find", "3.13"], env=uv_environment(), stdout=subprocess.PIPE, check=False
        )
        found = answer.stdout.decode().strip()
        if recent_enough(found):
            return found
    sys.exit("setup: Tenure needs Python 3.11 or newer. Install one (it may stand beside the old one), then repeat.")


def make_venv(python, place=VENV):
    """An environment with pip in it; Debian ships python3 without the part that makes one, so help out there."""
    if works(python, "-c", "import ensurepip, venv"):
        return subprocess.call([python, "-m", "venv", "--clear", place]) == 0
    if works(python, "-m", "virtualenv", "--version"):
        return subprocess.call([python, "-m", "virtualenv", "--clear", "--quiet", place]) == 0
    return False


def need_venv(python, place=VENV):
    """Make an environment, with the part of Python that makes one installed where it can be; else leave."""
    if not make_venv(python, place) and not (install_venv_module(python) and make_venv(python, place)):
        sys.exit("setup: {} cannot make a virtual environment. Install its venv module, then repeat.".format(python))


def install_venv_module(python):
    """With root and apt-get at hand, install what `python -m venv` lacks."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    version = (
        subprocess.check_output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).decode().strip()
    )
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    say("installing the venv module of Python " + version)
    subprocess.call(["apt-get", "update", "-qq"], env=environment)
    for package in ("python{}-venv".format(version), "python3-venv"):
        if subprocess.call(["apt-get", "install", "-y", "-qq", package], env=environment) == 0:
            return True
    return False


def pip_install(python, pins):
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    return subprocess.call([*command, "--require-hashes", "-r", pins]) == 0


def install_uv():
    return pip_install(PYTHON, UV_PIN)


def pip_settings():
    """What pip was told by its files and by the environment, which wins."""
    answer = subprocess.run([PYTHON, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, check=False)
    settings = {}
    for scope in ("global.", "install.", ":env:."):
        for line in answer.stdout.decode().splitlines():
            name, _, value = line.partition("=")
            if name.startswith(scope):
                settings[name[len(scope) :]] = str(ast.literal_eval(value)).split()
    return settings


def uv_environment():
    """The environment for uv: its own settings where there are any, else pip's."""
    environment = dict(os.environ, VIRTUAL_ENV=VENV)
    pip = pip_settings()

    def default(name, values, separator):
        if values:
            environment.setdefault(name, separator.join(values))

    default("UV_SYSTEM_CERTS", ["true"], "")
    default("SSL_CERT_FILE", pip.get("cert"), "")
    default("UV_FIND_LINKS", [link for link in pip.get("find-links", []) if "://" in link or os.path.isdir(link)], ",")
    if not any(name in environment for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")):
        default("UV_DEFAULT_INDEX", pip.get("index-url"), "")
        default("UV_INDEX", pip.get("extra-index-url"), " ")
    if pip.get("no-index", ["false"])[0].lower() in ("1", "true", "yes", "on"):
        environment.setdefault("UV_NO_INDEX", "true")
    return environment


def uv(*arguments):
    return subprocess.call([UV, *arguments], env=uv_environment(), cwd=ROOT)


def prepare():
    if not (recent_enough(PYTHON) and works(PYTHON, "-m", "pip", "--version")):
        python = find_python()
        say("making .venv with " + python)
        need_venv(python)
    say("installing the pinned requirements")
    if not install_uv():
        sys.exit("setup: pip could not install uv. Is a package index within reach?")
    # Both files, so that what is in neither goes away: .venv holds what is pinned and nothing else.
    if uv("pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode", UV_PIN, DEV_PINS) != 0:
        sys.exit("setup: uv could not install the pinned requirements; the reason stands above.")
    if uv("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", ".") != 0:
        sys.exit("setup: the package itself could not be installed; the reason stands above.")
    say("ready: .venv/bin/tenure")


def build():
    """Build into dist/ with the pinned builder, in an environment of its own that is kept for the next time."""
    python = os.path.join(BUILD_VENV, "bin", "python")
    if not (recent_enough(python) and works(python, "-m", "pip", "--version")):
        need_venv(find_python(), BUILD_VENV)
    if not pip_install(python, BUILD_PINS):
        sys.exit("build: pip could not install the pinned builder. Is a package index within reach?")
    shutil.rmtree(os.path.join(ROOT, "dist"), ignore_errors=True)
    if subprocess.call([python, "-m", "hatchling", "build", "-d", "dist"], cwd=ROOT) != 0:
        sys.exit("build: the package could not be built; the reason stands above.")


if __name__ == "__main__":
    if sys.argv[1:] == ["build"]:
        sys.exit(build())
    if sys.argv[1:2] == ["uv"]:
        sys.exit(uv(*sys.argv[2:]))
    prepare()
