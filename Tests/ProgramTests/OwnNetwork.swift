// SPDX-License-Identifier: MIT

import Foundation
import TestSupport

/// Programs in their own network, which a test can break. Needs the right to make one (root, also in containers).
enum OwnNetwork {
  /// With their own view of /proc: libdispatch reads the state of its threads there, and traps if it does not find them.
  private static let options = [
    "--net", "--mount", "--propagation", "private", "--fork", "--pid", "--mount-proc", "--kill-child",
  ]

  /// A shell that runs `script` in that network; the shell and its children end with the object. `$1`…: `arguments`.
  static func program(_ script: String, _ arguments: [String] = []) throws -> Program {
    try Program("/usr/bin/unshare", options + ["bash", "-c", script, "script"] + arguments)
  }

  /// Whether such a network can be made here. `script`: further requirements.
  static func isPossible(_ script: String = "ip link set lo up", _ arguments: [String] = []) -> Bool {
    // `try?`: a script that cannot start fails.
    (try? program(script, arguments).ended()) == 0
  }

  /// The beginning of a script: the host `name` has two addresses. Packets to the first, 2001:db8::dead, are lost, as from a host with broken IPv6;
  /// the second, 192.0.2.1, is this machine. `$1`: a folder for files.
  static func deadAddress(of name: String) -> String {
    """
    set -e
    ip link set lo up
    ip addr add 192.0.2.1/32 dev lo
    ip link add dead0 type veth peer name dead1
    ip addr add 2001:db8::1/64 dev dead0 nodad
    ip link set dead0 up; ip link set dead1 up
    ip neigh add 2001:db8::dead lladdr 02:00:00:00:00:01 dev dead0 nud permanent
    printf '2001:db8::dead \(name)\\n192.0.2.1 \(name)\\n127.0.0.1 localhost\\n' >"$1/hosts"
    mount --bind "$1/hosts" /etc/hosts
    # The cable's ends find each other by and by; until then its address comes last.
    first() { getent ahosts \(name) | head -1; }
    for look in $(seq 100); do [[ $(first) == 2001:db8::dead* ]] && break; sleep 0.1; done
    [[ $(first) == 2001:db8::dead* ]]
    ! timeout 1 bash -c '</dev/tcp/2001:db8::dead/80' 2>/dev/null
    # A server that the script starts and that ends is told, for else the rest would wait for it and say nothing.
    serve() { "$@" || echo "ended with $?: $*"; }

    """
  }

  /// Whether a dead address can be made here.
  static var mayHaveDeadAddress: Bool {
    let scratch = Scratch()
    return isPossible(deadAddress(of: "twin"), [scratch.folder.path()])
  }
}
