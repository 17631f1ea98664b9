/** Fields and forms that the rows of several benchmarks share. */
import { z } from "zod";

export type Kind = {
  /** value of `case` */
  case: string | RegExp;
  fields: z.ZodRawShape;
  /** rows of this kind are not in every run */
  optional?: boolean;
};
export type BenchShape = { head: z.ZodRawShape; kinds: Readonly<Record<string, Kind>> };

export const ms = z.number().nonnegative();
export const count = z.int().nonnegative();
export const amount = z.number().nonnegative();
export const size = z.enum(["tiny", "quick", "full"]);
export const accelerator = z.enum(["kvm", "tcg"]);
export const timings = z.record(z.string(), ms);
