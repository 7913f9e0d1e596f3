/// <reference lib="esnext.disposable" />

// Leader election for Node programs, through the agent of primacy on this host.

/** Any error of this package, but for wrong arguments and aborted waits. */
export class PrimacyError extends Error {}

/** A word of the protocol. Newer agents may have others. */
export type RefusalCode =
  | 'malformed'
  | 'protocol'
  | 'clock'
  | 'not-allowed'
  | 'no-such-election'
  | 'proof'
  | 'busy'
  | 'ending'
  | 'unavailable'
  | 'refused'
  | (string & {});

/** The agent refuses what it was asked for. */
export class RefusedError extends PrimacyError {
  private constructor();
  readonly code: RefusalCode;
  /** A sentence for people. */
  readonly why: string;
}

/** No agent was reached, or it has not answered as it should. */
export class AgentError extends PrimacyError {
  private constructor();
  /** Whether the request was sent: if so, an order may have been carried out. */
  readonly isSent: boolean;
}

/** The candidate was closed. */
export class ClosedError extends PrimacyError {
  private constructor();
}

/** Why a leadership was lost. It is the reason of its `signal`. */
export class LostError extends PrimacyError {
  private constructor();
  readonly reason: LossReason;
  /** A sentence for people. */
  readonly why: string;
}

/**
 * Why the work is to stop: a word of the agent, such as `deposed` or `expired`, or `silent` (the
 * agent has not extended the leadership), `disconnected`, `closed` (the candidate was), or
 * `resigned` (the leadership was closed).
 */
export type LossReason = 'silent' | 'disconnected' | 'closed' | 'resigned' | (string & {});

export type Proof = 'none' | 'process' | 'cgroup';

export interface CampaignOptions {
  /** What people call this candidate. The default is the name of the agent. */
  name?: string;
  /** What it publishes, such as its address, up to 1,024 bytes. */
  data?: string;
  /** How the agent may know that nothing works for this program any more. The default is `none`. */
  proof?: Proof;
  /** The path of the agent's socket. */
  socket?: string;
  /** Is called once for each leadership whose work is to stop, unless it was closed before. */
  onLost?: (leadership: Leadership, reason: LossReason) => void;
  /** Ends the wait for the agent. It does not close the candidate after that. */
  signal?: AbortSignal;
}

/** How a candidate that waits stands, as the agent has told it last. */
export interface Standing {
  /** 1 is next; `null` where it is not known. */
  readonly position: number | null;
  /** `null` if nobody is known to lead. */
  readonly leader: { readonly name: string; readonly token: bigint | null } | null;
  /** A sentence for people. */
  readonly why: string;
}

/**
 * Becomes a candidate. Resolves when the agent has accepted it. It goes on trying while there is no
 * agent, or while it is busy. Rejects with a `RefusedError` if the agent refuses for good.
 */
export function campaign(election: string, options?: CampaignOptions): Promise<Candidate>;

/** One that wants to lead an election, until it is closed. It goes on with the next agent. */
export class Candidate {
  private constructor();
  /**
   * Resolves when this candidate leads, and the leadership before was closed. A leadership that
   * begins while nobody waits is kept for the next call, and given back if it ends meanwhile.
   */
  elected(options?: { signal?: AbortSignal }): Promise<Leadership>;
  /** `null` while it does not wait, or is not connected. */
  readonly standing: Standing | null;
  /** Why it cannot be elected at the moment, for people; `null` if it can. */
  readonly trouble: string | null;
  /**
   * Stops being a candidate. A leadership that is still open is lost. Its `close` gives it back.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  [Symbol.dispose](): void;
}

/** The right to act as leader, until its deadline. */
export class Leadership {
  private constructor();
  /** The fencing token. It goes into every write, for a fence to compare. */
  readonly token: bigint;
  /** Whether the program may act: nobody else leads at this moment. Once false, it stays false. */
  isCurrent(): boolean;
  /** Milliseconds for which the work may go on, unless the leadership is extended. */
  remaining(): number;
  /** Resolves when the work is to stop. It never rejects. */
  readonly lost: Promise<LossReason>;
  /** Is aborted when the work is to stop, with a `LostError`. */
  readonly signal: AbortSignal;
  /** Why the work is to stop; `null` as long as it may go on. */
  readonly reason: LossReason | null;
  /** The same in a sentence for people; empty as long as the work may go on. */
  readonly why: string;
  /** Says that all work has stopped, and gives the leadership back. Also needed after a loss. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  [Symbol.dispose](): void;
}

export interface Participant {
  readonly id: string;
  readonly label: string;
  readonly data: string;
}

/** What `primacy status --json` prints. Fields that are not named here are there as well. */
export interface Status {
  readonly election: string;
  readonly state: 'led' | 'vacant' | 'unknown' | 'never' | 'forgotten';
  /** `null` unless `state` is `led`. */
  readonly leader: Participant | null;
  /** The last one that was granted, also after its lease has ended. */
  readonly token: bigint;
  readonly paused: boolean;
  readonly candidates: readonly Participant[];
  readonly [field: string]: unknown;
}

/** How an election stands. Changes between two calls of `next` are told in one. */
export class Observation implements AsyncIterableIterator<Status> {
  private constructor();
  /** Why it sees nothing at the moment, for people; `null` if it does. */
  readonly trouble: string | null;
  [Symbol.asyncIterator](): this;
  next(): Promise<IteratorResult<Status, undefined>>;
  return(): Promise<IteratorReturnResult<undefined>>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  [Symbol.dispose](): void;
}

/** Tells how an election stands, at once and after each change. It goes on with the next agent. */
export function observe(
  election: string,
  options?: { socket?: string; signal?: AbortSignal },
): Observation;

export interface AskOptions {
  socket?: string;
  /** Milliseconds until the answer must be there. The default is 15,000. */
  timeout?: number;
  signal?: AbortSignal;
}

export interface OrderOptions extends AskOptions {
  /** The order counts only if this is still the last token that was granted. */
  token?: bigint | number | string;
}

/** What `primacy promote --no-wait --json` and the others print. */
export interface Outcome {
  readonly order: string;
  readonly result: string;
  readonly [field: string]: unknown;
}

/** Makes a candidate that waits the leader. */
export function promote(
  election: string,
  candidate: string,
  options?: OrderOptions,
): Promise<Outcome>;
/** Makes the leader hand over to any other candidate. */
export function depose(election: string, options?: OrderOptions): Promise<Outcome>;
/** Lets nobody lead who does not lead already. */
export function pause(election: string, options?: OrderOptions): Promise<Outcome>;
/** Lets candidates lead again. */
export function resume(election: string, options?: OrderOptions): Promise<Outcome>;

/** One hold of the agent. */
export interface Hold {
  readonly election: string;
  readonly name: string;
  readonly pid: number;
  readonly uid: number;
  readonly standing: 'waits' | 'leads' | 'draining' | 'ends';
  readonly token: bigint | null;
  readonly deadline_ns: number | null;
  readonly proof: Proof;
}

/** The programs that wait and lead through the agent. A user is shown its own. */
export function holds(options?: AskOptions): Promise<Hold[]>;
