import csv
from pathlib import Path

seen: set[str] = set()
with (
    Path("/workspace/orders.csv").open(newline="", encoding="utf-8") as source,
    Path("/workspace/out/orders.csv").open("w", newline="", encoding="utf-8") as target,
):
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["order", "customer", "amount"])
    for row in csv.DictReader(source):
        order, customer = row["order"].strip(), row["customer"].strip().capitalize()
        try:
            amount = float(row["amount"])
        except ValueError:
            continue
        if customer and amount > 0 and order not in seen:
            seen.add(order)
            writer.writerow([order, customer, f"{amount:.2f}"])
