/** What a store is opened with, and how it lists a tag that cannot be used. */
import type { Logger } from "@forkd/base";
import type { CacheLimits } from "./flat-cache.ts";
import type { VerifiedRecordPlace } from "./verified-record.ts";

/** A tag without a usable snapshot. */
export type BrokenSnapshot = {
  tag: string;
  dir: string;
  /** failed: it was never completed; corrupt: it cannot be read */
  kind: "failed" | "corrupt";
  problem: string;
  /** the sandbox that was branched */
  branchedFrom?: string;
  failedAtUnix?: number;
};

export type StoreOptions = {
  /** directory of the memory images that are built from chains */
  cacheDir: string;
  /** default: no limit, and no image is in use */
  cacheLimits?: CacheLimits;
  /** id → stamp of images that machines map already */
  mappedImages?: ReadonlyMap<string, string>;
  /** name → stamp of views that machines use already */
  mappedViews?: ReadonlyMap<string, string>;
  /** most segments of a view; a snapshot that needs more has a flat image */
  maxViewSegments?: number;
  /** where verified files are remembered over a restart; default: nowhere */
  verifiedRecord?: VerifiedRecordPlace;
  log?: Logger;
};
