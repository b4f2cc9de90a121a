/** JSON-RPC with the language server, through the Jupyter server's relay: one message per frame. */

const RETRY_MS = 1_000;
const RETRY_MS_MAX = 30_000;

type Params = Record<string, unknown>;

interface Message {
  id?: number;
  method?: string;
  params?: Params;
  result?: unknown;
  error?: { message: string };
}

/** A question on its way; who does not want the answer any more cancels it. */
export interface Question<T> {
  readonly answer: Promise<T>;
  cancel(): void;
}

export class Socket {
  /** Told of each notification by its method. `foretype/hello` is the relay's own, and the first on every connection. */
  readonly heard = new Map<string, (params: Params) => void>();

  private socket: WebSocket | undefined;
  private readonly waiting = new Map<number, { resolve: (result: never) => void; reject: (error: Error) => void }>();
  private last = 0;
  private retryMs = RETRY_MS;
  private wanted = false;

  constructor(private readonly connect: () => WebSocket) {}

  /** Connect, and again whenever the connection is lost. */
  open(): void {
    if (!this.wanted) {
      this.wanted = true;
      this.dial();
    }
  }

  get isOpen(): boolean {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  /** Nothing is kept for later: who connects anew is told everything anew. */
  notify(method: string, params: Params): void {
    this.send({ method, params });
  }

  ask<T>(method: string, params: Params): Question<T> {
    const id = ++this.last;
    const answer = new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
    });
    if (this.isOpen) {
      this.send({ id, method, params });
    } else {
      this.refuse(id, 'not connected');
    }
    return { answer, cancel: () => this.waiting.has(id) && this.notify('$/cancelRequest', { id }) };
  }

  private dial(): void {
    const socket = (this.socket = this.connect());
    socket.onmessage = ({ data }) => this.receive(JSON.parse(String(data)) as Message);
    socket.onclose = () => {
      for (const id of [...this.waiting.keys()]) {
        this.refuse(id, 'the connection was lost');
      }
      setTimeout(() => this.dial(), this.retryMs);
      this.retryMs = Math.min(2 * this.retryMs, RETRY_MS_MAX);
    };
  }

  private send(message: Message): void {
    if (this.isOpen) {
      this.socket?.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
    }
  }

  private receive({ id, method, params, result, error }: Message): void {
    if (method !== undefined) {
      if (method !== 'foretype/hello') {
        this.retryMs = RETRY_MS; // the language server itself speaks: it lives
      }
      this.heard.get(method)?.(params ?? {});
    } else if (id !== undefined && error) {
      this.refuse(id, error.message);
    } else if (id !== undefined) {
      this.waiting.get(id)?.resolve(result as never);
      this.waiting.delete(id);
    }
  }

  private refuse(id: number, why: string): void {
    this.waiting.get(id)?.reject(new Error(why));
    this.waiting.delete(id);
  }
}
