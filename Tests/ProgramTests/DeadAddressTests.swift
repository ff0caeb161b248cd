// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A host with two addresses, the first of which drops all packets, as with broken IPv6.
  @Suite struct DeadAddresses {
    /// Forwards connections at 192.0.2.1 to the same port of 127.0.0.1, and is a webhook itself.
    private static let servers = """
      \(Program.say)
      import http.server, socket, sys, threading
      class Handler(http.server.BaseHTTPRequestHandler):
          def do_POST(self):
              say("hook " + self.rfile.read(int(self.headers["Content-Length"])).decode())
              self.send_response(204); self.end_headers()
          def log_message(self, *_): pass
      def pump(a, b):
          try:
              while data := a.recv(65536): b.sendall(data)
          except OSError: pass
          for end in (a, b):
              try: end.shutdown(socket.SHUT_RDWR)
              except OSError: pass
      def carry(port):
          listener = socket.create_server(("192.0.2.1", port))
          while True:
              ours, _ = listener.accept()
              try: theirs = socket.create_connection(("127.0.0.1", port))
              except OSError: ours.close(); continue
              threading.Thread(target=pump, args=(ours, theirs), daemon=True).start()
              threading.Thread(target=pump, args=(theirs, ours), daemon=True).start()
      for port in sys.argv[2:]: threading.Thread(target=carry, args=(int(port),), daemon=True).start()
      http.server.ThreadingHTTPServer(("192.0.2.1", int(sys.argv[1])), Handler).serve_forever()
      """

    @Test(
      .enabled("a network namespace with a dead address cannot be made here (needs root, veth and bind mounts)") {
        OwnNetwork.mayHaveDeadAddress
      })
    func `a hub, a broker, a webhook and a radio are reached although their first address is dead`() throws {
      let rig = try Rig()
      let ports = try (0..<3).map { _ in
        let (descriptor, port) = try LoopbackPort.take()
        close(descriptor)
        return Int(port)
      }
      let (hook, broker, radio) = (ports[0], ports[1], ports[2])
      rig.link = "tcp:twin:\(radio)"
      rig.writeGatewayConfiguration(
        url: "http://twin:\(rig.hubPort)",
        extra: """
          [[upstream]]
          name = "broker"
          kind = "mqtt"
          url = "mqtt://twin:\(broker)"
          [[upstream]]
          name = "hook"
          kind = "webhook"
          url = "http://twin:\(hook)/"
          kinds = ["message"]
          template = '{"text":"{{text}}"}'
          """)
      _ = rig.scratch.write("mosquitto.conf", "listener \(broker) 127.0.0.1\nallow_anonymous true\nuser root\n")
      let script =
        OwnNetwork.deadAddress(of: "twin") + """
          serve "$3" -c '\(Self.servers)' \(hook) \(rig.hubPort) \(broker) \(radio) &
          serve mosquitto -c "$1/mosquitto.conf" &
          serve "$2/meshpost-hub" serve --config "$1/hub.toml" &
          (
            # All listen: who refuses would make the gateway wait for the dead address, and rightly.
            for address in 192.0.2.1:\(hook) 127.0.0.1:\(rig.hubPort) 127.0.0.1:\(broker) 127.0.0.1:\(radio) \
              192.0.2.1:\(rig.hubPort) 192.0.2.1:\(broker) 192.0.2.1:\(radio); do
              until ss -Hltn "src $address" | grep -q .; do sleep 0.1; done
            done
            exec "$2/meshpostd" --config "$1/gw.toml"
          ) &
          exec "$2/meshpost-radio" --clock now --tcp r0=\(radio)
          """
      let all = try OwnNetwork.program(
        script, [rig.scratch.folder.path(), Program.programs.path(), Program.python])
      rig.gateway = all
      try rig.waitForSync()
      all.write("chan r1 0 hello from afar")
      try untilTrue("all three to have it: \(all.lines)") {
        let upstreams = try rig.status()?["upstreams"]?.array ?? []
        return upstreams.count == 3 && upstreams.allSatisfy { $0["pending"]?.integer == 0 }
          && all.lines.contains { $0.hasPrefix("hook") && $0.contains("hello from afar") }
      }
      let upstreams = try rig.status()?["upstreams"]?.array ?? []
      #expect(upstreams.first { $0["name"]?.string == "hub" }?["link"]?.string == "live")
      // No upstream waited for the whole time limit of a connection.
      #expect(!all.lines.contains { $0.contains("no answer in time") }, "\(all.lines)")
    }
  }
}
