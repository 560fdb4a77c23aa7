"""`plan` on a terminal shows the fastest step so far and what it looks for, and SIGINT ends it with the best plan found.

The request is one that takes far longer than the two seconds after which the line appears."""

import json, os, pty, select, signal, subprocess, sys, tempfile, time

LTRAIN = os.environ["LTRAIN"]
PATIENCE = 250  # seconds until the test gives up
LARGE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 128256, "hidden_size": 8192,
         "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
         "max_position_embeddings": 1 << 20, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False}


def read_until(fd, text, said, until):
    """Reads from the terminal until it has shown the text, or the other end is closed."""
    while text is None or text not in said:
        assert time.monotonic() < until, said[-400:]
        if select.select([fd], [], [], 1)[0]:
            try:
                part = os.read(fd, 1 << 16)
            except OSError:
                part = b""
            if not part:
                break
            said += part.decode(errors="replace")
    return said


def main():
    until = time.monotonic() + PATIENCE
    with tempfile.TemporaryDirectory() as where:
        with open(os.path.join(where, "config.json"), "w") as f:
            json.dump(LARGE, f)
        terminal, end = pty.openpty()
        command = [LTRAIN, "plan", "--model", where, "--seq-len", "1m", "--machine", "8xh200", "--host-mem", "1.9T", "--effort", "best"]
        child = subprocess.Popen(command, stdin=end, stdout=end, stderr=end)
        os.close(end)
        said = read_until(terminal, "so far, looking for", "", until)
        assert "a step of" in said and "so far, looking for" in said, said
        child.send_signal(signal.SIGINT)
        said = read_until(terminal, None, said, until)
        assert child.wait() == 0, (child.returncode, said)
        assert ": fits," in said and "SIGINT ended planning early: this is the best plan found until then" in said, said
    print("planning ends early with the best plan so far")


if __name__ == "__main__":
    sys.exit(main())
