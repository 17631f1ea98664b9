import { z } from "zod";
import { accelerator, amount, count, ms, timings, type BenchShape } from "./row-fields.ts";

/** Rows of the spawn benchmark. */
export const spawnShape: BenchShape = {
  head: { accelerator, rounds: count, parallel: count, qemu: z.string(), memory_mib: count },
  kinds: {
    cold: { case: "cold", fields: { accelerator } },
    fork: { case: "fork", fields: { fork_ms: ms } },
    /** ready: how many of the n came from the pool */
    pool: { case: "fork, ready", fields: { fork_ms: ms, ready: count } },
    /** a command while nothing else happens and while n ready children are made, which takes wall_ms */
    refill: {
      case: "refill",
      fields: { command_idle_ms: ms, command_refill_ms: ms, commands: count },
    },
    floor: { case: "floor", fields: {} },
    bubblewrap: { case: "bubblewrap", fields: {} },
    runc: { case: "runc", fields: {} },
    /** a contender that this host cannot run */
    absent: {
      case: "absent",
      fields: { contender: z.enum(["bubblewrap", "runc"]), reason: z.string() },
      optional: true,
    },
    /** of n children that live at once */
    costs: {
      case: "costs",
      fields: {
        diverged_mib_per_child: amount,
        pss_mib_per_child: amount,
        daemon_rss_mib: amount,
        idle_percent_of_core: amount,
        idle_percent_of_core_mean: amount,
        eval_agent_ms: ms,
        eval_rest_adds_ms: z.number(),
      },
    },
    /** one child: `steps` are ms since the client's request; spawn-trace.ts names them */
    trace: {
      case: "trace",
      fields: {
        index: count,
        steps: timings,
        eval_agent_ms: ms,
        vmm_cpu_ms: ms,
        diverged_mib: amount,
      },
    },
    children: { case: /^children \d+ to \d+$/, fields: {} },
    "live children": { case: /^\d+ live children, one eval each$/, fields: {} },
  },
};
