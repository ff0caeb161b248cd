// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import Sockets
import Store
import TestSupport
import Testing
import Timing

@testable import EventLoop
@testable import HTTP
@testable import Relay

/// These tests have a process of their own, because descriptors belong to the process. Upstreams are begun, cut, paused, tested, given a new network
/// or database, and stopped at any moment.
@Suite(.serialized) struct UpstreamLifetimeTests {
  /// A server that treats each connection at random: no answer, the end, nonsense, half an answer, or a whole one.
  private final class Whim {
    let port: UInt16
    private let loop: EventLoop
    private let descriptor: Int32
    private var random: SeededRandom
    private var tasks: [LoopTask] = []

    init(on loop: EventLoop, seed: UInt64) throws {
      signal(SIGPIPE, SIG_IGN)
      self.loop = loop
      random = SeededRandom(seed: seed)
      (descriptor, port) = try LoopbackSocket.listen(on: 0)
      loop.watch(descriptor, for: .readable) { [unowned self] _ in self.accept() }
    }

    func stop() {
      for task in tasks { task.cancel() }
      loop.unwatch(descriptor)
      close(descriptor)
    }

    private func accept() {
      let socket = Glibc.accept(descriptor, nil, nil)
      guard socket >= 0 else { return }
      Descriptor.setNonBlocking(socket)
      let (stream, whim) = (SocketStream(socket, on: loop), Int.random(in: 0..<8, using: &random))
      tasks.append(
        loop.begin {
          // The connection ends when either side has closed it.
          do { try await Self.serve(stream, whim) } catch {}
          stream.close()
        })
    }

    private static func serve(_ stream: SocketStream, _ whim: Int) async throws {
      while true {
        let heard = try await stream.read()
        let head = String(decoding: heard, as: UTF8.self)
        switch whim {
        case 0: continue
        case 1: return
        case 2: stream.write(Array("nonsense\r\n\r\n".utf8))
        case 3: stream.write(Array("HTTP/1.1 200 OK\r\nContent-Le".utf8))
        case 4: stream.write(Array("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".utf8))
        // A CONNACK, and PUBACKs of the first publications.
        case 5: stream.write(heard.first == 0x10 ? [0x20, 3, 0, 0, 0] : [0x40, 2, 0, 1])
        case 6:
          guard let key = head.split(separator: "\r\n").first(where: { $0.hasPrefix("Sec-WebSocket-Key: ") }) else {
            continue
          }
          stream.write(
            Array(
              ("HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: meshpost.v1\r\n"
                + "Sec-WebSocket-Accept: \(WebSocketKey.answer(to: String(key.dropFirst(19))))\r\n\r\n").utf8))
          let welcome = Array(#"{"type":"welcome","acknowledged":null,"window":4}"#.utf8)
          stream.write([0x81, UInt8(welcome.count)] + welcome)
        default:
          let body = #"{"acknowledged":1}"#
          stream.write(Array("HTTP/1.1 200 OK\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)".utf8))
        }
      }
    }
  }

  static var descriptors: Int {
    // `try?`: without /proc nothing can be counted, and the test reports this.
    (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? -1
  }

  private func settings(_ kind: Int, _ port: UInt16, _ name: String) throws -> UpstreamSettings {
    let journal = Upstream.Settings(name: name, batchEvents: 4, fromStart: true)
    let url = "http://127.0.0.1:\(port)"
    switch kind {
    case 0:
      return UpstreamSettings(
        kind: .hub(isLive: true, keepAlive: 300), journal: journal, url: url, timeout: .seconds(5))
    case 1:
      return UpstreamSettings(
        kind: .hub(isLive: false, keepAlive: 300), journal: journal, url: url, timeout: .seconds(5))
    case 2:
      let webhook = UpstreamSettings.Kind.webhook(
        secretFile: nil, template: nil, contentType: "application/json", batches: false)
      return UpstreamSettings(kind: webhook, journal: journal, url: url, timeout: .seconds(5))
    default:
      let mqtt = UpstreamSettings.MQTTSettings(topic: try TopicTemplate("t"), statusTopic: try TopicTemplate("s"))
      return UpstreamSettings(
        kind: .mqtt(mqtt), journal: journal, url: "\(kind == 3 ? "mqtt" : "ws")://127.0.0.1:\(port)",
        timeout: .seconds(5))
    }
  }

  @Test(arguments: [UInt64(1)]) func `a thousand upstreams leave no task, descriptor or timer`(_ seed: UInt64) throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop())
    var random = SeededRandom(seed: seed)
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    loop.afterTurn { store.commit() }
    store.write { store throws(SQLiteError) in
      for _ in 0..<20 { try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8)) }
    }
    try store.commitNow()
    let before = (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount)
    let server = try Whim(on: loop, seed: seed)
    for round in 0..<1000 {
      let settings = try settings(Int.random(in: 0..<5, using: &random), server.port, "u\(round % 7)")
      let upstream = try Upstream(settings, store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
      upstream.wake()
      for _ in 0..<Int.random(in: 0..<12, using: &random) {
        switch Int.random(in: 0..<14, using: &random) {
        case 0: upstream.networkChanged()
        case 1: upstream.resume()
        case 2: upstream.setPaused(Bool.random(using: &random))
        case 3: _ = loop.begin { _ = await upstream.test() }
        case 4: _ = loop.begin { _ = await upstream.test() }
        case 5: upstream.bucketSync?.refresh()
        default: upstream.wake()
        }
        let timer = loop.schedule(after: .microseconds(Int64.random(in: 0..<2000, using: &random))) {}
        loop.turn(wait: true)
        timer.cancel()
      }
      upstream.stop()
    }
    server.stop()
    let isQuiet = turn(loop) {
      (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount) == before
    }
    #expect(
      isQuiet,
      "seed \(seed): descriptors \(Self.descriptors), watches \(loop.watchCount), timers \(loop.waitingTimers), tasks \(loop.taskCount); before \(before)"
    )
  }

  /// A reload builds new and changed upstreams, and releases the replaced ones.
  @Test func `a thousand reloads leave no task, descriptor or timer`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop())
    var random = SeededRandom(seed: 2)
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    let relay = try Relay([], store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn { [weak relay] in
      store.commit()
      if store.transactions.takeNews().hasGrown { relay?.wake() }
    }
    let server = try Whim(on: loop, seed: 2)
    loop.turn(wait: false)
    let before = (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount)
    for _ in 0..<1000 {
      let wanted = try (0..<5).map { number in
        var settings = try settings(number, server.port, "u\(number)")
        // Some settings are unchanged, and their upstreams continue.
        settings.timeout = .seconds(Int64.random(in: 5...7, using: &random))
        return settings
      }
      try relay.change(to: wanted)
      relay.wake()
      for _ in 0..<Int.random(in: 1..<6, using: &random) {
        let timer = loop.schedule(after: .microseconds(Int64.random(in: 0..<2000, using: &random))) {}
        loop.turn(wait: true)
        timer.cancel()
      }
    }
    try relay.change(to: [])
    let isQuiet = turn(loop) {
      (loop.waitingTimers, loop.taskCount) == (before.2, before.3) && loop.watchCount <= before.1
        && Self.descriptors <= before.0
    }
    #expect(
      isQuiet,
      "descriptors \(Self.descriptors), watches \(loop.watchCount), timers \(loop.waitingTimers), tasks \(loop.taskCount); before \(before)"
    )
    server.stop()
  }
}
