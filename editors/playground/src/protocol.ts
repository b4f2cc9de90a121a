/** The gateway as this page sees it: prompts and post-processing by HTTP, suggestions over the WebSocket (docs/protocol.md). */

export interface Segment {
  kind: string;
  text: string;
}

export interface Plan {
  complete: { version: number; segments: Segment[]; prompt_tokens: number };
  ranges: [number, number][];
  layout: string;
  kind: string;
  budget_tokens: number;
  healed: string;
  dropped: { kind: string; tokens: number; reason: string }[];
  timings_ms: Record<string, number>;
}

export interface Done {
  finish: string;
  usage: { prompt_tokens: number; cached_tokens: number; cached_source: string; generated_tokens: number };
  timings_ms: Record<string, number>;
}

export interface Finished {
  text: string;
  replaces: number;
  reason: string | null;
}

/** The gateway wants to know who this is. */
export class LoginNeeded extends Error {}

const HALF = 'foretype.page';
const PROTOCOL = 'foretype';

/** This page's half of its login; the cookie is the other. It belongs to this port, which a cookie does not. */
const half = (): string | null => localStorage.getItem(HALF);

/** Log in with the gateway's token, or with a code that `foretype playground` made. */
export async function enter(credential: { token: string } | { code: string }): Promise<void> {
  const { page } = await post<{ page: string }>('login', credential);
  localStorage.setItem(HALF, page);
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  const page = half();
  const answer = await fetch(`/playground/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(page ? { 'x-foretype-page': page } : {}) },
    body: JSON.stringify(body),
  });
  if (answer.status === 401) {
    throw new LoginNeeded();
  }
  const value = await answer.json();
  if (!answer.ok) {
    throw new Error(value.error?.message ?? `the gateway answers ${answer.status}`);
  }
  return value as T;
}

interface Listener {
  delta(text: string): void;
  done(done: Done): void;
  failed(message: string): void;
}

export const random = (): string =>
  [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

const CREDENTIALS = 4401;

/** One connection at a time, made again when it breaks; what was under way then has failed. */
export class Stream {
  private socket: WebSocket | undefined;
  private opened: Promise<WebSocket> | undefined;
  private readonly live = new Map<string, Listener>();

  constructor(
    private readonly told: (profile: { model: string; grammar: string; layout: string }) => void,
    private readonly login: () => void,
  ) {}

  /** Start a completion; its id. */
  async complete(plan: Plan, supersedes: string | undefined, listener: Listener): Promise<string> {
    const socket = await this.connected();
    const id = random();
    this.live.set(id, listener);
    const more = supersedes && this.live.has(supersedes) ? { supersedes } : {};
    socket.send(JSON.stringify({ type: 'complete', id, ...more, ...plan.complete }));
    return id;
  }

  cancel(id: string): void {
    if (this.live.delete(id) && this.socket?.readyState === WebSocket.OPEN) {
      this.socket.send(JSON.stringify({ type: 'cancel', id }));
    }
  }

  connected(): Promise<WebSocket> {
    this.opened ??= new Promise((resolve, reject) => {
      const page = half();
      const url = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/v1/stream`;
      const socket = new WebSocket(url, page ? [PROTOCOL, `${PROTOCOL}.${page}`] : []);
      this.socket = socket;
      socket.onopen = () => {
        socket.send(JSON.stringify({ type: 'hello', v: 1, client: 'playground' }));
        resolve(socket);
      };
      socket.onmessage = (event) => this.take(JSON.parse(event.data as string));
      socket.onclose = ({ code }) => {
        this.opened = this.socket = undefined;
        const failed = [...this.live.values()];
        this.live.clear();
        for (const listener of failed) {
          listener.failed('the connection to the gateway broke');
        }
        if (code === CREDENTIALS) {
          this.login();
        }
        reject(new Error('the gateway cannot be reached'));
      };
    });
    return this.opened;
  }

  private take(message: { type: string; id?: string; [key: string]: unknown }): void {
    if (message.type === 'profile') {
      this.told(message as never);
      return;
    }
    const listener = message.id === undefined ? undefined : this.live.get(message.id);
    if (!listener || message.id === undefined) {
      return;
    }
    if (message.type === 'delta') {
      listener.delta(message.text as string);
      return;
    }
    this.live.delete(message.id);
    if (message.type === 'done') {
      const { finish, usage, timings_ms } = message as unknown as Partial<Done> & Pick<Done, 'finish'>;
      const tokens = { prompt_tokens: 0, cached_tokens: 0, cached_source: '', generated_tokens: 0, ...usage };
      listener.done({ finish, usage: tokens, timings_ms: timings_ms ?? {} });
    } else {
      listener.failed((message.message as string) || (message.code as string) || message.type);
    }
  }
}
