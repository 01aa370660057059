import csv
import json
from collections import defaultdict

amounts: dict[str, list[float]] = defaultdict(list)
with open("/workspace/out/orders.csv", newline="", encoding="utf-8") as source:
    for row in csv.DictReader(source):
        amounts[row["customer"]].append(float(row["amount"]))
summary = {name: {"orders": len(values), "total": round(sum(values), 2)} for name, values in amounts.items()}
with open("/workspace/out/summary.json", "w", encoding="utf-8") as target:
    json.dump(summary, target, indent=2)
