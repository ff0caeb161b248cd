// What `deploy/pages/pack` sets, and what this script runs in.
declare const PACKED: Record<string, string[]>;
