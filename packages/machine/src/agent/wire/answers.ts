/** Readers of the answers to requests: one frame each, unless "more" follow. Pure. */
import { frameType, type Frame } from "./frames.ts";
import { decodeClockOk, decodeForked, type AfterForkReport } from "./replies.ts";

/** Reads one frame of an answer: returns the result, or "more" if frames follow; undefined if it is wrong. */
export type AnswerReader<T> = (frame: Frame) => { readonly value: T } | "more" | undefined;

export const readOk: AnswerReader<void> = ({ type }) =>
  type === frameType.ok ? { value: undefined } : undefined;

export const readClock: AnswerReader<{ guestBeforeNs: bigint }> = ({ type, payload }) =>
  type === frameType.clockOk ? { value: { guestBeforeNs: decodeClockOk(payload) } } : undefined;

export const readForked: AnswerReader<AfterForkReport> = ({ type, payload }) =>
  type === frameType.forked ? { value: decodeForked(payload) } : undefined;
