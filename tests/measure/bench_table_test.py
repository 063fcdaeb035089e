"""What scripts/bench_table.py makes of a receipt."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import bench_table  # noqa: E402


def row(**changes):
    values = {"test": "tg128", "n_prompt": 0, "n_gen": 128, "n_depth": 0, "n_busy": 0, "n_threads": 2, "contended": False,
              "median_ts": 50.0, "samples_ts": [48.0, 50.0, 51.0], "of_bandwidth": 0.75}
    return values | changes


def receipt(rows, **changes):
    load = {"busy_cores": 0.01, "average": 0.5}
    return {"commit": "abc", "device": "cpu", "host": {"cpu": "EPYC"}, "load": {"before": load, "after": load},
            "memory": {"file": 10**9, "kv": 10**8, "state": 0, "peak_resident": 11 * 10**8}, "rows": rows,
            "loads": [{"n_threads": 2, "median_s": 0.5, "samples_s": [0.5]}],
            "bandwidth": {"huge_pages": True, "by_threads": [{"n_threads": 2, "bytes_per_s": 70e9}]}} | changes


class BenchTable(unittest.TestCase):
    def table(self, name, content):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"{name}.json"
            path.write_text(json.dumps(content))
            return bench_table.table([path])

    def test_a_compared_row_has_both_speeds_the_ratio_and_what_is_wanted(self):
        other = {"median_ts": 25.0, "samples_ts": [24.0, 25.0, 26.0]}
        text = self.table("llama-1b-TQ2_0", receipt([row(compared=other, ratio=2.0)],
                                                    compared={"library": "llama.cpp 1", "file": "other.gguf"}))
        self.assertIn("| llama-1b-TQ2_0 | tg128 | 2 | 50 (48-51) | 75% | 25 (24-26) | 2.00 | 1.7 |", text)
        self.assertIn("100% of file, KV and state", text)
        self.assertIn("llama.cpp 1 on other.gguf", text)

    def test_a_contended_row_says_so(self):
        self.assertIn("| contended |", self.table("x", receipt([row(contended=True)])))

    def test_a_row_beside_a_busy_process_is_a_share_of_the_undisturbed_one(self):
        rows = [row(), row(test="tg128 beside 1 busy", n_busy=1, median_ts=25.0)]
        self.assertIn("| 50% | 40% of undisturbed |", self.table("llama-1b-TQ2_0", receipt(rows)))

    def test_scaling_is_from_one_thread_to_the_most(self):
        rows = [row(n_threads=1, median_ts=25.0), row()]
        self.assertIn("scaling tg128 2.00x", self.table("x", receipt(rows)))

    def test_nothing_measured_is_said(self):
        self.assertIn("No receipts yet", bench_table.table([]))


if __name__ == "__main__":
    unittest.main()
