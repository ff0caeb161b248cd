// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

/// A request with an endless answer.
final class Following {
  private let socket: Int32
  private var text = ""
  private(set) var hasEnded = false

  /// `header`: the credentials.
  init(_ port: Int, _ target: String = "/v1/live", header: String) throws {
    socket = try LoopbackPort.connect(UInt16(port))
    let head = "GET \(target) HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\n\(header)\r\n\r\n"
    _ = head.withCString { write(socket, $0, strlen($0)) }
    _ = fcntl(socket, F_SETFL, O_NONBLOCK)
  }

  deinit { close(socket) }

  func look() -> String {
    var bytes = [UInt8](repeating: 0, count: 4096)
    while !hasEnded {
      let count = read(socket, &bytes, bytes.count)
      if count < 0, errno == EAGAIN { break }
      if count <= 0 { hasEnded = true } else { text += String(decoding: bytes.prefix(count), as: UTF8.self) }
    }
    return text
  }

  func begin() throws { try untilTrue("a stream to begin: \(look())") { look().contains("event: hello") } }

  func end(_ what: String) throws {
    try untilTrue("the end of \(what)") {
      _ = look()
      return hasEnded
    }
  }
}

extension WholeProgramTests {
  @Suite struct Revocation {
    private static let other = "another-token-for-tests"
    private static let bearer = "Authorization: Bearer "

    private func write(_ rig: Rig, gateway: String = "*", access: String = "all") {
      _ = rig.scratch.write("other", Self.other + "\n")
      _ = rig.scratch.write(
        "hub.toml",
        """
        port = \(rig.hubPort)
        database = "\(rig.scratch.location("hub.db"))"
        [[token]]
        file = "\(rig.scratch.location("other"))"
        access = "all"
        [[token]]
        file = "\(rig.scratch.location("token"))"
        gateway = "\(gateway)"
        access = "\(access)"
        """)
    }

    private func start() throws -> Rig {
      let rig = try Rig()
      write(rig)
      try rig.startHub()
      try rig.startRadio(["--contacts", "3"])
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("the link") { try isLinked(rig) }
      return rig
    }

    private func isLinked(_ rig: Rig) throws -> Bool {
      // A retry with back-off need not slow the test down.
      _ = rig.control("POST", "/v1/outbox/resume")
      let answer = rig.askHub("GET", "/v1/fleet", token: Self.other)
      return try JSONValue(parsing: answer?.body ?? [])["gateways"]?.array?.first?["linked"]?.bool == true
    }

    @Test func `the end of a token ends its link, its streams and its waiting requests`() throws {
      let rig = try start()
      let reader = try Following(rig.hubPort, header: Self.bearer + Rig.token)
      let spared = try Following(rig.hubPort, header: Self.bearer + Self.other)
      let command = rig.askHub(
        "POST", "/v1/gateways/away/commands", body: #"{"id":"c1","command":"send","to":"x","text":"y","queue":true}"#)
      #expect(command?.status == 202)
      let waiting = try Following(
        rig.hubPort, "/v1/gateways/away/commands/c1?wait_s=60", header: Self.bearer + Rig.token)
      try reader.begin()
      try spared.begin()
      _ = rig.scratch.write("token", "the-token-that-comes-next\n")
      rig.hub?.send(SIGHUP)
      // The link, the stream, the command, and perhaps a request of the gateway by HTTP.
      try rig.hub?.line(with: "tokens reloaded; closed ")
      try reader.end("the stream")
      try waiting.end("the wait for a command")
      // The gateway rereads its file, and connects again.
      try untilTrue("a link with the new token") { try isLinked(rig) }
      _ = spared.look()
      #expect(!spared.hasEnded)
    }

    @Test func `a token with fewer rights keeps what it still allows`() throws {
      let rig = try start()
      let reader = try Following(rig.hubPort, header: Self.bearer + Rig.token)
      try reader.begin()
      write(rig, access: "read")
      rig.hub?.send(SIGHUP)
      try rig.hub?.line(with: "tokens reloaded; closed ")
      try untilTrue("the link to end") { try !isLinked(rig) }
      rig.radio?.write("chan r1 0 nobody may bring this to the hub")
      try untilTrue("a message at the gateway") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      try untilTrue("its stream to tell that the link ended") { reader.look().contains("\"linked\":false") }
      #expect(!reader.hasEnded)
      write(rig, gateway: rig.gatewayID ?? "", access: "all")
      rig.hub?.send(SIGHUP)
      try reader.end("a stream of all gateways, of a token for one")
      try untilTrue("the link") { try isLinked(rig) }
    }
  }
}
