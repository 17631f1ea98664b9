/** Metrics of the runtime. Label values come from small sets: never an id, never a tag. */
import { Counter, Histogram, type Metric } from "@forkd/base";
import type { ForkdEvent } from "@forkd/contract";

const fast = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
const usual = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

const endings: Readonly<Record<string, string>> = {
  "sandbox.killed": "killed",
  "sandbox.expired": "expired",
  "sandbox.died": "died",
};

export class RuntimeMetrics {
  readonly forkSeconds = new Histogram("forkd_fork_seconds", "Fork calls, until every child answered", usual);
  readonly readySeconds = new Histogram(
    "forkd_ready_seconds",
    "Children, from the request until the agent answered",
    usual,
  );
  readonly execSeconds = new Histogram("forkd_exec_seconds", "Commands that a caller waited for", usual);
  readonly evalSeconds = new Histogram("forkd_eval_seconds", "Evals", usual);
  readonly branchPauseSeconds = new Histogram(
    "forkd_branch_pause_seconds",
    "How long branched sandboxes were paused",
    fast,
  );
  readonly chainBuildSeconds = new Histogram(
    "forkd_chain_build_seconds",
    "Flat memory images made from a chain of layers",
    usual,
  );
  readonly childFailures = new Counter(
    "forkd_child_failures_total",
    "Children that could not be made, by code",
  );
  readonly children = new Counter(
    "forkd_children_total",
    "Children that were handed out, by where their machine came from",
    ["pool", "start"].map((from) => ({ from })),
  );
  readonly poolDiscards = new Counter(
    "forkd_pool_discards_total",
    "Ready children that were stopped before a fork took them, by reason",
  );
  readonly poolFailures = new Counter(
    "forkd_pool_failures_total",
    "Ready children that could not be handed out and were replaced",
    [{}],
  );
  readonly compactions = new Counter(
    "forkd_compactions_total",
    "Chains that were to be shortened in the background, by outcome",
    ["ok", "failed", "given_up"].map((outcome) => ({ outcome })),
  );
  readonly #ended = new Counter(
    "forkd_sandboxes_ended_total",
    "Sandboxes that ended, by reason",
    Object.values(endings).map((reason) => ({ reason })),
  );
  readonly #events = new Counter("forkd_events_total", "Events, by type");

  /** Counts an event. */
  seen({ type, sandbox }: ForkdEvent): void {
    this.#events.add({ type });
    // Killing a dead sandbox only removes its record.
    const wasDead = type === "sandbox.killed" && sandbox?.reason !== "killed";
    const reason = endings[type];
    if (reason !== undefined && !wasDead) this.#ended.add({ reason });
  }

  get all(): readonly Metric[] {
    return [
      this.forkSeconds,
      this.readySeconds,
      this.execSeconds,
      this.evalSeconds,
      this.branchPauseSeconds,
      this.chainBuildSeconds,
      this.childFailures,
      this.children,
      this.poolDiscards,
      this.poolFailures,
      this.compactions,
      this.#ended,
      this.#events,
    ];
  }
}
