"""Train a small model of flows with scikit-learn and publish it: which flows are larger than their time explains?

Run: python train.py [STORE], then score flows with score.sql. It needs millstream[learning].
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import joblib
import numpy as np
from sklearn.ensemble import RandomForestClassifier

from millstream.streams.learning.store import ModelStore

FLOWS = 2_000


def flows(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Made-up flows as (bytes, seconds), and which of them leak: many bytes in little time."""
    draw = np.random.default_rng(7)
    seconds = draw.uniform(1, 60, count)
    leaks = draw.random(count) < 0.1
    pace = np.where(leaks, draw.uniform(5e5, 1e6, count), draw.uniform(1e3, 5e4, count))
    return np.column_stack([seconds * pace, seconds]), leaks


def main() -> None:
    store = ModelStore(Path(sys.argv[1] if len(sys.argv) > 1 else "models"))
    features, leaks = flows(FLOWS)
    model = RandomForestClassifier(n_estimators=20, random_state=7).fit(features, leaks.astype(int))
    kept = io.BytesIO()
    joblib.dump(model, kept)
    head = store.publish("leaks", kept.getvalue(), "sklearn", why=f"trained on {FLOWS:,} flows")
    print(f"version {head.version} of the model leaks is in {store.directory} ({head.size_bytes:,} bytes)")


if __name__ == "__main__":
    main()
