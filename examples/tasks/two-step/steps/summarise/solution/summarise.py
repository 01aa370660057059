import csv
import json
from collections import defaultdict
from pathlib import Path

amounts: dict[str, list[float]] = defaultdict(list)
with Path("/workspace/out/orders.csv").open(newline="", encoding="utf-8") as source:
    for row in csv.DictReader(source):
        amounts[row["customer"]].append(float(row["amount"]))
summary = {name: {"orders": len(values), "total": round(sum(values), 2)} for name, values in amounts.items()}
Path("/workspace/out/summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
