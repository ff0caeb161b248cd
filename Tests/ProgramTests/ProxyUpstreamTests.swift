// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

/// A foreign proxy (pproxy), for HTTP and SOCKS; it prints its connections.
private final class WayOut {
  let port: Int
  private let login: String?
  private let address: String
  private(set) var program: Program?

  init(login: String? = nil, address: String = "127.0.0.1") throws {
    let (descriptor, port) = try LoopbackPort.take()
    close(descriptor)
    (self.port, self.login, self.address) = (Int(port), login, address)
  }

  func start() throws {
    let place = "http+socks4+socks5://\(address):\(port)" + (login.map { "#\($0)" } ?? "")
    program = try Program(Program.python, ["-u", "-W", "ignore", "-m", "pproxy", "-v", "-l", place])
    try program?.line(with: "Serving on")
  }

  func stop() {
    program?.kill9()
    program = nil
  }

  /// Whether it has connected to that port by that protocol, by the lines read so far.
  func hasCarried(_ kind: String, to port: Int) -> Bool {
    program?.lines.contains { $0.contains("\(kind) ") && $0.hasSuffix(":\(port)") && $0.contains("->") } ?? false
  }

  /// Waits for the line, which may come after the data.
  func waitUntilCarried(_ kind: String, to port: Int) throws {
    try untilTrue("\(kind) to port \(port): \(program?.lines ?? [])") { hasCarried(kind, to: port) }
  }
}

/// The servers of a gateway: its hub by both protocols, a broker, a webhook.
private final class Servers {
  private static let hookServer = """
    \(Program.say)
    import http.server
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            say("got " + self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204); self.end_headers()
        def log_message(self, *_): pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print("port", server.server_address[1], flush=True)
    server.serve_forever()
    """

  let rig: Rig
  let hook: Program
  let hookPort: Int
  let brokerPort: Int
  private let broker: Program

  init() throws {
    rig = try Rig()
    hook = try Program(Program.python, ["-c", Self.hookServer])
    hookPort = Int(try hook.line(with: "port ").split(separator: " ").last ?? "") ?? 0
    let (descriptor, port) = try LoopbackPort.take()
    close(descriptor)
    brokerPort = Int(port)
    let file = rig.scratch.write("mosquitto.conf", "listener \(port) 127.0.0.1\nallow_anonymous true\nuser root\n")
    broker = try Program("/usr/sbin/mosquitto", ["-v", "-c", file])
    try broker.line(with: " running")
    try rig.startHub()
    try rig.startRadio(["--queue", "1000"])
  }

  /// Configures them as the only upstreams. `hub`, `broker`, `hook`: further keys, such as `proxy`.
  func configure(hub: String = "", broker: String = "", hook: String = "") {
    _ = rig.scratch.write(
      "gw.toml",
      """
      [radio]
      link = "\(rig.link)"
      [store]
      location = "\(rig.scratch.location("gw.db"))"
      [control]
      socket = "\(rig.socket)"
      [[upstream]]
      name = "hub"
      url = "http://127.0.0.1:\(rig.hubPort)"
      token_file = "\(rig.scratch.location("token"))"
      \(hub)
      [[upstream]]
      name = "broker"
      kind = "mqtt"
      url = "mqtt://127.0.0.1:\(brokerPort)"
      \(broker)
      [[upstream]]
      name = "hook"
      kind = "webhook"
      url = "http://127.0.0.1:\(hookPort)/T0"
      kinds = ["message"]
      template = '{"text":"{{text}}"}'
      \(hook)
      """)
  }

  func startGateway(_ environment: [String: String] = [:]) throws {
    rig.gateway = try Program(
      Program.programs.appending(path: "meshpostd").path(), ["--config", rig.scratch.location("gw.toml")],
      environment: environment)
    try rig.gateway?.line(with: "meshpostd")
  }

  func upstream(_ name: String) throws -> JSONValue? {
    try rig.status()?["upstreams"]?.array?.first { $0["name"]?.string == name }
  }

  /// Waits until each of these has everything.
  func waitForAll(_ names: [String] = ["hub", "broker", "hook"], messages: Int) throws {
    try untilTrue("all to have everything: \(try rig.status()?["upstreams"] ?? .null)") {
      guard try rig.status()?["store"]?["messages"]?.integer ?? 0 >= Int64(messages) else { return false }
      return try names.allSatisfy { try upstream($0)?["pending"]?.integer == 0 }
    }
  }

  /// The texts at the webhook, in order, by the lines read so far.
  var texts: [String] { hook.lines.filter { $0.hasPrefix("got ") } }

  /// The same, once there are this many; fails if there are more.
  func texts(_ count: Int) throws -> [String] {
    try untilTrue(
      """
      \(count) at the webhook, which ended with \(hook.exitCode ?? -1) and printed \(hook.lines); \
      \(try rig.status()?["upstreams"] ?? .null)
      """
    ) { texts.count >= count }
    let found = texts
    #expect(found.count == count, "\(found)")
    return found
  }
}

extension WholeProgramTests {
  @Suite struct ProxiedUpstreams {
    private static let login = "me:hush%20hush"

    @Test(arguments: [("http", "live"), ("http", "http"), ("socks5h", "live"), ("socks5h", "http"), ("socks4", "live")])
    func `a hub, a broker and a webhook are reached through the configured proxy`(
      _ kind: String, _ link: String
    ) throws {
      let servers = try Servers()
      let (rig, isSecret) = (servers.rig, kind != "socks4")
      let way = try WayOut(login: isSecret ? "me:hush hush" : nil)
      try way.start()
      let proxy = "proxy = \"\(kind)://\(isSecret ? Self.login + "@" : "")127.0.0.1:\(way.port)\""
      servers.configure(hub: "\(proxy)\nlink = \"\(link)\"", broker: proxy, hook: proxy)
      try servers.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 hello by another way")
      try servers.waitForAll(messages: 1)
      #expect(try servers.upstream("hub")?["link"]?.string == link)
      #expect(try servers.texts(1)[0].contains("hello by another way"))
      let word = kind == "socks5h" ? "socks5" : kind
      for port in [rig.hubPort, servers.brokerPort, servers.hookPort] {
        try way.waitUntilCarried(word, to: port)
      }
      let report = try rig.meshpost("report")
      let status = rig.control("GET", "/v1/status").map { String(decoding: $0.body, as: UTF8.self) } ?? ""
      for text in [report.lines.joined(), status, rig.gateway?.lines.joined() ?? ""] {
        #expect(!text.contains("hush"), "\(text)")
      }
    }

    @Test func `the environment's proxies are used by scheme, and no_proxy and "none" are respected`() throws {
      let servers = try Servers()
      let (web, rest) = (try WayOut(), try WayOut())
      try web.start()
      try rest.start()
      // By a name of its own, which is in no_proxy.
      servers.configure(hook: "proxy = \"none\"")
      let file = servers.rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = servers.rig.scratch.write(
        "gw.toml",
        text + """

          [[upstream]]
          name = "near"
          kind = "webhook"
          url = "http://localhost:\(servers.hookPort)/near"
          kinds = ["message"]
          """)
      try servers.startGateway([
        "http_proxy": "http://127.0.0.1:\(web.port)", "ALL_PROXY": "socks5h://127.0.0.1:\(rest.port)",
        "no_proxy": "localhost,.lan",
      ])
      try servers.rig.waitForSync()
      servers.rig.radio?.write("chan r1 0 hello")
      try servers.waitForAll(["hub", "broker", "hook", "near"], messages: 1)
      try web.waitUntilCarried("http", to: servers.rig.hubPort)
      try rest.waitUntilCarried("socks5", to: servers.brokerPort)
      for way in [web, rest] { #expect(!way.hasCarried("", to: servers.hookPort), "\(way.program?.lines ?? [])") }
      _ = try servers.texts(2)
    }

    @Test func `an invalid variable stops its upstreams, and no connection bypasses the proxy`() throws {
      let servers = try Servers()
      servers.configure(broker: "proxy = \"none\"")
      try servers.startGateway(["HTTP_PROXY": "https://me:hush@127.0.0.1:1"])
      try servers.rig.waitForSync()
      servers.rig.radio?.write("chan r1 0 hello")
      try servers.waitForAll(["broker"], messages: 1)
      for name in ["hub", "hook"] {
        let upstream = try #require(try servers.upstream(name))
        #expect(upstream["state"]?.string == "stopped", "\(upstream)")
        #expect("\(upstream)".contains("HTTP_PROXY in the environment"), "\(upstream)")
        #expect(!"\(upstream)".contains("hush"))
      }
      #expect(servers.texts.isEmpty)
    }

    @Test func `a proxy that goes and comes repeatedly loses nothing`() throws {
      let servers = try Servers()
      let (rig, way) = (servers.rig, try WayOut())
      let proxy = "proxy = \"http://127.0.0.1:\(way.port)\""
      servers.configure(hub: proxy, broker: proxy, hook: proxy)
      try servers.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 first")
      let words = "the proxy http://127.0.0.1:\(way.port) cannot be reached: Connection refused"
      for name in ["hub", "broker", "hook"] {
        try untilTrue("\(name) to say why it waits: \(try servers.upstream(name) ?? .null)") {
          "\(try servers.upstream(name) ?? .null)".contains(words)
        }
      }
      try way.start()
      try servers.waitForAll(messages: 1)
      rig.radio?.write("chan r1 0 second")
      try servers.waitForAll(messages: 2)
      way.stop()
      for number in 3...9 { rig.radio?.write("chan r1 0 number \(number)") }
      try untilTrue("nine stored") { try rig.status()?["store"]?["messages"]?.integer == 9 }
      try way.start()
      try servers.waitForAll(messages: 9)
      let order = try servers.texts(9).map { text in
        ["first", "second"].first { text.contains($0) } ?? String(text.suffix(3).prefix(1))
      }
      #expect(order == ["first", "second", "3", "4", "5", "6", "7", "8", "9"], "\(servers.texts)")
      try untilTrue("nine at the hub") { try rig.hubTexts().count == 9 }
    }

    private static let tlsServer = """
      \(Program.say)
      import socket, ssl, threading
      context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
      context.load_cert_chain("server.pem", "server.key")
      listener = socket.create_server(("127.0.0.1", 0))
      print("port", listener.getsockname()[1], flush=True)
      def serve(raw):
          try:
              tls = context.wrap_socket(raw, server_side=True)
              if data := tls.recv(65536): say("told " + str(data[:40]))
          except OSError: pass
      while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
      """

    @Test(arguments: ["http", "socks5h"])
    func `a hub with the certificate of another host is refused behind a proxy, too`(_ kind: String) throws {
      let servers = try Servers()
      let (rig, way) = (servers.rig, try WayOut())
      try way.start()
      let make = """
        openssl req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 2 -subj /CN=other.example \
        -addext subjectAltName=DNS:other.example,DNS:127.0.0.1 2>/dev/null
        """
      #expect(try Program("/bin/bash", ["-c", make], folder: rig.scratch.folder).ended() == 0)
      let server = try Program(Program.python, ["-c", Self.tlsServer], folder: rig.scratch.folder)
      let port = Int(try server.line(with: "port ").split(separator: " ").last ?? "") ?? 0
      rig.writeGatewayConfiguration(
        url: "https://localhost:\(port)",
        extra: "ca_file = \"\(rig.scratch.location("server.pem"))\"\nproxy = \"\(kind)://127.0.0.1:\(way.port)\"")
      try servers.startGateway()
      try rig.waitForSync()
      try untilTrue("the certificate to be refused: \(try servers.upstream("hub") ?? .null)") {
        "\(try servers.upstream("hub") ?? .null)".lowercased().contains("certificate")
      }
      #expect("\(try servers.upstream("hub") ?? .null)".contains("mismatch"))
      try way.waitUntilCarried(kind == "http" ? "http" : "socks5", to: port)
      #expect(!server.lines.contains { $0.hasPrefix("told") }, "the token was told: \(server.lines)")
    }

    @Test func `an upstream is added with its proxy, and an invalid one is refused without its password`() throws {
      let servers = try Servers()
      let (rig, way) = (servers.rig, try WayOut(login: "me:hush hush"))
      servers.configure()
      try servers.startGateway()
      try rig.waitForSync()
      try way.start()
      let place = "127.0.0.1:\(way.port)"
      let url = "http://127.0.0.1:\(servers.hookPort)/added"
      func add(_ proxy: String) throws -> (code: Int32, lines: [String]) {
        try rig.meshpost("upstream", "add", "added", url, "--kind", "webhook", "--set", "proxy=\(proxy)")
      }
      let wrong = try add("https://\(Self.login)@\(place)")
      #expect(wrong.code != 0 && wrong.lines.contains { $0.contains("cannot be used") }, "\(wrong.lines)")
      #expect(!wrong.lines.contains { $0.contains("hush") })
      let right = try add("socks5h://\(Self.login)@\(place)")
      #expect(right.code == 0, "\(right.lines)")
      #expect(right.lines.contains { $0.contains("--set proxy=-") }, "others can read it: \(right.lines)")
      #expect(!right.lines.contains { $0.contains("hush") })
      #expect(try rig.meshpost("upstream", "remove", "added").code == 0)
      let typed = try Program.own(
        "meshpost",
        ["upstream", "add", "added", url, "--kind", "webhook", "--set", "proxy=-", "--socket", rig.socket])
      typed.write("socks5h://\(Self.login)@\(place)")
      #expect(try typed.ended() == 0, "\(typed.lines)")
      #expect(!typed.lines.contains { $0.contains("warning") || $0.contains("hush") }, "\(typed.lines)")
      #expect(try rig.meshpost("upstream", "test", "added").code == 0)
      try way.waitUntilCarried("socks5", to: servers.hookPort)
      #expect(!(try rig.meshpost("upstream", "list", "--json").lines.contains { $0.contains("hush") }))
    }

    // MARK: A dead address of the proxy

    @Test(
      .enabled("a network namespace with a dead address cannot be made here (needs root, veth and bind mounts)") {
        OwnNetwork.mayHaveDeadAddress
      }, arguments: ["http", "socks5h"])
    func `a proxy is reached although its first address is dead`(_ kind: String) throws {
      let rig = try Rig()
      let way = try WayOut(address: "192.0.2.1")
      rig.writeGatewayConfiguration(extra: "proxy = \"\(kind)://way:\(way.port)\"")
      let script =
        OwnNetwork.deadAddress(of: "way") + """
          serve "$3" -u -W ignore -m pproxy -v -l http+socks5://192.0.2.1:\(way.port) &
          serve "$2/meshpost-hub" serve --config "$1/hub.toml" &
          (
            # Both listen: who refuses would make the gateway wait for the dead address, and rightly.
            for address in 192.0.2.1:\(way.port) 127.0.0.1:\(rig.hubPort); do
              until ss -Hltn "src $address" | grep -q .; do sleep 0.1; done
            done
            exec "$2/meshpostd" --config "$1/gw.toml"
          ) &
          exec "$2/meshpost-radio" --clock now --advertise --tty "r0=$1/radio.tty"
          """
      let all = try OwnNetwork.program(
        script, [rig.scratch.folder.path(), Program.programs.path(), Program.python])
      rig.gateway = all
      try rig.waitForSync()
      all.write("chan r1 0 hello from afar")
      try untilTrue("the hub to have it: \(all.lines)") {
        guard try rig.status()?["store"]?["messages"]?.integer == 1 else { return false }
        return try rig.status()?["upstreams"]?.array?.first?["pending"]?.integer == 0
      }
      #expect(try rig.status()?["upstreams"]?.array?.first?["link"]?.string == "live")
      #expect(all.lines.contains { $0.contains("->") && $0.hasSuffix(":\(rig.hubPort)") }, "\(all.lines)")
    }
  }
}
