"""The table."""

from rows import percentile


def figure(value, unit):
    if value is None:
        return "-"
    if unit == "s":
        return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
    if unit == "B/s":
        return f"{value / 1e6:.1f} MB/s" if value < 1e9 else f"{value / 1e9:.2f} GB/s"
    if unit == "B":
        return f"{value / (1 << 20):.1f} MiB"
    return f"{value:.3g}"


def spread(row, values):
    """Median, p95 and most of many; median and extremes of few."""
    return f"{figure(percentile(values, 0.95), row.unit)}, {figure(max(values), row.unit)}"


def markdown(rows, results, seconds):
    names = [kind.name for kind in results.kinds]
    others = sorted({name for row in results.samples.values() for name in row} - set(names))
    names += others
    lines = ["| what | limit | " + " | ".join(f"{name}: median (p95, max)" for name in names) + " | goal |",
             "|---|---|" + "---|" * len(names) + "---|"]
    for row in rows:
        if row.id not in results.samples:
            continue
        cells = [row.title, figure(row.limit, row.unit)]
        for name in names:
            values = results.of(row.id, name)
            if not values:
                cells.append("-")
                continue
            median = results.median(row.id, name)
            ratio = f" = {median / row.limit:.2f}x" if row.limit else ""
            cells.append(f"{figure(median, row.unit)}{ratio} ({spread(row, values)}; n={len(values)})")
        cells.append(verdict(row, results))
        lines.append("| " + " | ".join(cells) + " |")
    lines.append(f"\nOne run, {seconds:.0f} s.")
    return "\n".join(lines) + "\n"


def verdict(row, results):
    value = results.median(row.id, "mediafs")
    if row.goal is None or value is None:
        return ""
    if row.of:
        base = results.median(row.id, row.of)
        if not base:
            return ""
        value /= base
    elif row.limit and not row.absolute:
        value /= row.limit
    met = value >= row.goal if row.more else value <= row.goal
    sign = ">=" if row.more else "<="
    shown = figure(row.goal, row.unit) if row.absolute or (row.limit is None and not row.of) else f"{row.goal:g}x"
    return f"{sign} {shown} {'of ' + row.of if row.of else ''}: {'met' if met else 'NOT MET'}"
