// An op in words, for tooltips and the open row of the table.

import type { Op, Report } from "./data";
import { count, percent, si, significant, timeText } from "./quantities";
import type { Lines } from "./tooltip";

export function describeOp(op: Op, report: Report): Lines {
  const lines: (readonly [string, string | null])[] = [
    ["shapes", op.shapes],
    ["dtypes", op.dtypes],
    ["time", `${timeText(op.time_s)}, ${percent(op.time_s / report.step_s, 1)} of the step`],
    ["calls", count(op.count)],
    ["bound by", op.unit ? `${op.regime} (${op.unit})` : op.regime],
    ["of its ceiling", op.roof_fraction === null ? null : percent(op.roof_fraction)],
    ["achieved", achieved(op)],
    ["arithmetic intensity", op.intensity === null ? null : `${significant(op.intensity)} FLOP/B`],
    ["module", op.module],
    ["line", op.source],
    ["phase", op.phase],
  ];
  return lines.filter((line): line is [string, string] => !!line[1]);
}

export function describeOpFully(op: Op, report: Report): Lines {
  const lines: (readonly [string, string | null])[] = [
    ["work", op.flops === null ? null : si(op.flops, "FLOP")],
    ["memory traffic", op.bytes === null ? null : si(op.bytes, "B")],
    ["served from", op.memory_level],
    ["computed in", op.dtype],
    ["class", op.op_class && (report.classes[op.op_class] ?? op.op_class)],
    ["kernel", timeText(op.kernel_s)],
    ["at the ceiling", op.roof_s === null ? null : timeText(op.roof_s)],
    ["below the ceiling", op.below_s === null ? null : timeText(op.below_s)],
    ["fixed cost", timeText(op.fixed_s)],
    ["page faults", op.page_faults_s ? timeText(op.page_faults_s) : null],
  ];
  return [
    ...describeOp(op, report),
    ...lines.filter((line): line is [string, string] => !!line[1]),
  ];
}

function achieved(op: Op): string | null {
  const rates = [
    op.flops_per_s ? si(op.flops_per_s, "FLOP/s") : null,
    op.bytes_per_s ? si(op.bytes_per_s, "B/s") : null,
  ].filter(Boolean);
  return rates.length ? rates.join(", ") : null;
}
