/** Settings → what sandboxes may take. */
import type { QuotaSettings } from "@forkd/runtime";
import type { Settings } from "./load.ts";

export function quotaOf(values: Settings): QuotaSettings {
  const { default_memory_limit_mib: memory, default_cpu_percent: cpu, default_disk_limit_mib: disk } = values;
  return {
    defaultLimits: {
      ...(memory > 0 && { memory_mib: memory }),
      ...(cpu > 0 && { cpu_percent: cpu }),
      ...(disk > 0 && { disk_mib: disk }),
    },
    maxMemoryMib: values.max_memory_mib,
    maxDiskMib: values.max_disk_mib,
    memoryReserveMib: values.memory_reserve_mib,
    diskReserveMib: values.disk_reserve_mib,
    memoryOvercommit: values.memory_overcommit,
    maxPendingForks: values.max_pending_forks,
    gcIntervalSecs: values.gc_interval_secs,
    retention: { maxAgeDays: values.retention_max_age_days, keepLast: values.retention_keep_last },
  };
}
