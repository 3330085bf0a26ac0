#!/usr/bin/env python3
"""One engine in one process, run by peers.py inside that engine's environment.

    peers_worker.py llama|openvino|vllm MODEL --threads N

Reads one JSON command a line and answers with one JSON line on the standard output it was started with; whatever the engine
prints goes to the standard error. Token ids in, token ids out: no engine's tokenizer is measured.

Commands (op): load; prefill {ids} -> seconds; decode {ids, steps} -> seconds of the steps after the first token;
batch_decode {prompts, steps} -> seconds and tokens of the steps in which every sequence generates; greedy {ids, steps} -> ids;
logprobs {ids} -> per position [best id, its logprob, {id: logprob}]; quit.
"""
import argparse
import json
import os
import sys
import time
import traceback

import numpy as np


def log_softmax_rows(rows, wanted):
    """Per row the best id, its logprob, and the logprob of the id in wanted."""
    answer = []
    for row, ids in zip(rows, wanted):
        row = row.astype(np.float64)
        top = row.max()
        total = top + np.log(np.exp(row - top).sum())
        best = int(row.argmax())
        answer.append([best, float(row[best] - total), {str(i): float(row[i] - total) for i in ids}])
    return answer


class Llama:
    """llama.cpp through the low-level API of llama-cpp-python."""

    def __init__(self, path, threads):
        import llama_cpp
        self.lib, self.path, self.threads = llama_cpp, path, threads
        self.model = self.context = self.shape = None

    def load(self):
        lib = self.lib
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(self.path.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {self.path}")
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.open(1, 1024)
        return {"version": lib.__version__, "system": lib.llama_print_system_info().decode(),
                "precision": "int8 activations (blocks of 32 or 256), int32 sums"}

    def open(self, sequences, length):
        """A context of that many sequences of at least that length each; an existing one is used if it is large enough."""
        if self.shape and self.shape[0] == sequences and self.shape[1] >= length:
            self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
            return
        if self.context:
            self.lib.llama_free(self.context)
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = sequences * length, sequences
        params.n_batch, params.n_ubatch = 2048, 512
        params.n_threads = params.n_threads_batch = self.threads
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp cannot make a context")
        self.shape = (sequences, length)

    def decode_batch(self, entries):
        """entries: (token, position, sequence, wants logits)."""
        batch = self.lib.llama_batch_init(len(entries), 0, 1)
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, logits) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, logits
        code = self.lib.llama_decode(self.context, batch)
        self.lib.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode: {code}")

    def row(self, index):
        return np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, index), shape=(self.vocab,))

    def read_prompt(self, ids, sequence=0):
        for begin in range(0, len(ids), 2048):
            end = min(begin + 2048, len(ids))
            self.decode_batch([(ids[i], i, sequence, i == len(ids) - 1) for i in range(begin, end)])
        return int(self.row(-1).argmax())

    def prefill(self, ids):
        self.open(1, max(1024, len(ids) + 64))
        start = time.perf_counter()
        self.read_prompt(ids)
        return {"seconds": time.perf_counter() - start}

    def decode(self, ids, steps):
        self.open(1, max(1024, len(ids) + steps + 1))
        token, out = self.read_prompt(ids), []
        out.append(token)
        start = time.perf_counter()
        for step in range(steps):
            self.decode_batch([(token, len(ids) + step, 0, True)])
            token = int(self.row(-1).argmax())
            out.append(token)
        return {"seconds": time.perf_counter() - start, "ids": out}

    def greedy(self, ids, steps):
        return {"ids": self.decode(ids, steps - 1)["ids"]}

    def batch_decode(self, prompts, steps):
        length = max(map(len, prompts)) + steps + 1
        self.open(len(prompts), -(-length // 64) * 64)
        entries = [(token, p, i, p == len(ids) - 1) for i, ids in enumerate(prompts) for p, token in enumerate(ids)]
        self.decode_batch(entries)  # all prompts together, at most n_batch tokens
        tokens = [int(self.row(i).argmax()) for i, entry in enumerate(entries) if entry[3]]
        start = time.perf_counter()
        for step in range(steps):
            self.decode_batch([(tokens[i], len(ids) + step, i, True) for i, ids in enumerate(prompts)])
            tokens = [int(self.row(i).argmax()) for i in range(len(prompts))]
        return {"seconds": time.perf_counter() - start, "tokens": steps * len(prompts)}

    def logprobs(self, ids, wanted):
        self.open(1, 1024)
        self.decode_batch([(token, i, 0, True) for i, token in enumerate(ids)])
        return {"rows": log_softmax_rows((self.row(i) for i in range(len(ids))), wanted)}


class Stepped:
    """The works of an engine whose run(prompts, steps) gives a trace of its steps and the ids."""

    def prefill(self, ids):
        trace, _ = self.run([ids], 1)
        return {"seconds": trace[-1][0] - trace[0][0]}

    def decode(self, ids, steps):
        return decode_of_trace(*self.run([ids], steps + 1))

    def greedy(self, ids, steps):
        return {"ids": self.run([ids], steps)[1][0]}

    def batch_decode(self, prompts, steps):
        return batch_of_trace(self.run(prompts, steps + 2)[0])


class OpenVino(Stepped):
    """OpenVINO GenAI's continuous batching pipeline (paged attention), which its LLMPipeline uses too on this kind of CPU."""

    def __init__(self, path, threads):
        import openvino
        import openvino_genai
        self.ov, self.genai, self.path, self.threads = openvino, openvino_genai, path, threads
        self.pipe = self.plain = None
        self.next_id = 0

    def load(self):
        scheduler = self.genai.SchedulerConfig()
        scheduler.cache_size = 2
        scheduler.max_num_batched_tokens = 8192
        scheduler.max_num_seqs = 64
        scheduler.enable_prefix_caching = False
        self.pipe = self.genai.ContinuousBatchingPipeline(self.path, scheduler, "CPU", {"INFERENCE_NUM_THREADS": self.threads})
        model = self.ov.Core().read_model(os.path.join(self.path, "openvino_model.xml"))
        compiled = self.ov.Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": self.threads})
        precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        group = compiled.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE")
        del compiled
        constants = [op for op in model.get_ops() if op.get_type_name() == "Constant"]
        size = sum(map(lambda op: op.get_byte_size(), constants))
        tables = [op.get_byte_size() for op in constants if len(op.shape) == 2 and op.shape[0] > 30000 and op.shape[1] > 1]
        if len(tables) > 1:  # embedding and output layer apart: of the embedding only a row is read
            size -= tables[0]
        return {"version": self.genai.__version__,
                "precision": f"inference in {precision}, dynamic quantization group {group} (defaults)", "weight_bytes": size}

    def add(self, ids, steps):
        config = self.genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = steps, True, False
        self.next_id += 1
        tensor = self.ov.Tensor(np.array([ids], dtype=np.int64))
        return self.pipe.add_request(self.next_id, tensor, config)

    def run(self, prompts, steps):
        """(time, tokens so far per sequence) after each step, and the ids."""
        handles, outputs, trace = [self.add(ids, steps) for ids in prompts], [[] for _ in prompts], []
        trace.append((time.perf_counter(), [0] * len(prompts)))
        while self.pipe.has_non_finished_requests():
            self.pipe.step()
            for handle, out in zip(handles, outputs):
                while handle.can_read():
                    for generated in handle.read().values():
                        out.extend(generated.generated_ids)
            trace.append((time.perf_counter(), [len(out) for out in outputs]))
        return trace, outputs

    def logprobs(self, ids, wanted):
        if self.plain is None:
            path = os.path.join(self.path, "openvino_model.xml")
            self.plain = self.ov.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": self.threads})
        request, length = self.plain.create_infer_request(), len(ids)
        request.infer({"input_ids": np.array([ids]), "attention_mask": np.ones((1, length), np.int64),
                       "position_ids": np.arange(length)[None], "beam_idx": np.zeros(1, np.int32)})
        return {"rows": log_softmax_rows(request.get_tensor("logits").data[0], wanted)}


class Vllm(Stepped):
    """vLLM's offline engine, stepped by hand so that prefill and decode can be told apart."""

    def __init__(self, path, threads):
        self.path, self.next_id = path, 0

    def load(self):
        import torch
        import vllm
        self.vllm = vllm
        self.llm = vllm.LLM(self.path, dtype="bfloat16", max_model_len=8320, max_num_batched_tokens=8320, max_num_seqs=64,
                            enable_prefix_caching=False, max_logprobs=20, disable_log_stats=True, seed=0)
        with open(os.path.join(self.path, "model.safetensors"), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        sizes = {name: entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in header.items()
                 if name != "__metadata__"}
        size = sum(sizes.values()) - (sizes["model.embed_tokens.weight"] if "lm_head.weight" in sizes else 0)
        return {"version": vllm.__version__ + ", torch " + torch.__version__, "precision": "bf16 weights and activations",
                "weight_bytes": size}

    def run(self, prompts, steps, **more):
        params = self.vllm.SamplingParams(temperature=0, max_tokens=steps, ignore_eos=True, detokenize=False, **more)
        engine, order, outputs, trace = self.llm.llm_engine, {}, [[] for _ in prompts], []
        for i, ids in enumerate(prompts):
            self.next_id += 1
            order[str(self.next_id)] = i
            engine.add_request(str(self.next_id), {"prompt_token_ids": ids}, params)
        trace.append((time.perf_counter(), [0] * len(prompts)))
        self.last = []
        while engine.has_unfinished_requests():
            for output in engine.step():
                name = output.request_id if output.request_id in order else output.request_id.split("-")[0]
                outputs[order[name]] = list(output.outputs[0].token_ids)
                self.last.append(output)
            trace.append((time.perf_counter(), [len(out) for out in outputs]))
        return trace, outputs

    def logprobs(self, ids, wanted):
        """Prompt logprobs tell the 20 best of each next token; those behind the last come with the answer."""
        self.run([ids], 1, prompt_logprobs=20, logprobs=20)
        output = self.last[-1]
        rows = []
        for entry, ids_wanted in zip(output.prompt_logprobs[1:] + [output.outputs[0].logprobs[0]], wanted):
            best = max(entry, key=lambda i: entry[i].logprob)
            rows.append([best, entry[best].logprob, {str(i): entry[i].logprob for i in ids_wanted if i in entry}])
        return {"rows": rows}


def decode_of_trace(trace, outputs):
    """Seconds from the step that gave the first token to the last one."""
    first = next(time_ for time_, counts in trace if counts[0] > 0)
    return {"seconds": trace[-1][0] - first, "ids": outputs[0]}


def batch_of_trace(trace):
    """Only the steps before which every sequence had its first token and in which every one got another."""
    seconds = tokens = 0
    for (before, had), (after, has) in zip(trace, trace[1:]):
        if min(had) > 0 and all(b < a for b, a in zip(had, has)):
            seconds += after - before
            tokens += sum(has) - sum(had)
    return {"seconds": seconds, "tokens": tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["llama", "openvino", "vllm"])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = {"llama": Llama, "openvino": OpenVino, "vllm": Vllm}[args.engine](args.model, args.threads)
    for line in sys.stdin:
        command = json.loads(line)
        op = command.pop("op")
        if op == "quit":
            break
        try:
            answer = getattr(engine, op)(**command)
        except Exception as error:  # reported to peers.py, which shows it and goes on
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    answers.flush()
    os._exit(0)  # some engines hang in their destructors


if __name__ == "__main__":
    main()
