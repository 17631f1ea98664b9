/** Settings about what sandboxes may take; what is left out has the default. */
export type QuotaSettings = {
  /** of every sandbox that is not given others */
  defaultLimits: {
    memory_mib?: number | undefined;
    cpu_percent?: number | undefined;
    disk_mib?: number | undefined;
  };
  /** what the memory of all running sandboxes together may be; 0 for no limit */
  maxMemoryMib: number;
  /** what the disks of all sandboxes together may become; 0 for no limit */
  maxDiskMib: number;
  /** memory of the host that forks leave alone */
  memoryReserveMib: number;
  /** space at the data directory that forks leave alone */
  diskReserveMib: number;
  /** a new child is expected to write one part in so many of its memory, until its siblings tell better */
  memoryOvercommit: number;
  /** children asked for and not yet started, over all calls */
  maxPendingForks: number;
  /** seconds between two runs of what `retention` says; 0 for never */
  gcIntervalSecs: number;
  /** branches that are collected */
  retention: { maxAgeDays: number; keepLast: number };
};

export const quotaDefaults: QuotaSettings = {
  defaultLimits: {},
  maxMemoryMib: 0,
  maxDiskMib: 0,
  memoryReserveMib: 256,
  diskReserveMib: 64,
  memoryOvercommit: 16,
  maxPendingForks: 2000,
  gcIntervalSecs: 0,
  retention: { maxAgeDays: 0, keepLast: 0 },
};
