// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import JSON
import Streams

/// A hub on the loop of the test: keeps what comes, answers as it is told to.
final class HubDouble {
  enum Mood {
    case well
    /// Answers 503.
    case down
    /// Takes the next batch, and hangs up in place of the answer.
    case hangsUp
  }

  struct Event: Equatable {
    let epoch: String
    let seq: Int64
    let kind: String
    let text: String?
  }

  let port: UInt16
  var mood = Mood.well
  /// In the order in which they came, every copy.
  private(set) var events: [Event] = []
  private(set) var states = 0
  private var acknowledged: [String: Int64] = [:]
  private let loop: EventLoop
  private let listener: Int32
  private var connections: [LoopTask] = []

  init(on loop: EventLoop) throws {
    self.loop = loop
    (listener, port) = try LoopbackSocket.listen(on: 0)
    loop.watch(listener, for: .readable) { [unowned self] _ in accept() }
  }

  func stop() {
    for connection in connections { connection.cancel() }
    loop.unwatch(listener)
    close(listener)
  }

  private func accept() {
    let socket = Glibc.accept(listener, nil, nil)
    guard socket >= 0 else { return }
    Descriptor.setNonBlocking(socket)
    let stream = SocketStream(socket, on: loop)
    connections.append(
      loop.begin {
        // The gateway has closed it, or the test ends.
        do { try await self.serve(stream) } catch {}
        stream.close()
      })
  }

  private func serve(_ stream: SocketStream) async throws {
    var input: [UInt8] = []
    while true {
      while let request = Request(taking: &input) {
        guard let (status, body) = try answer(request) else { return }
        stream.write(Array("HTTP/1.1 \(status) x\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)".utf8))
      }
      input += try await stream.read()
    }
  }

  /// `nil`: it hangs up.
  private func answer(_ request: Request) throws -> (Int, String)? {
    if mood == .down { return (503, "{}") }
    if request.target.contains("/updates") { return (200, #"{"buckets":[]}"#) }
    if request.method == "PUT" {
      states += 1
      return (200, "{}")
    }
    if request.method == "GET" {
      let epoch = request.target.split(separator: "epoch=").last.map(String.init) ?? ""
      return (200, acknowledged[epoch].map { #"{"acknowledged":\#($0)}"# } ?? "{}")
    }
    let through = take(try JSONValue(parsing: request.body))
    if mood == .hangsUp {
      mood = .well
      return nil
    }
    return (200, #"{"acknowledged":\#(through)}"#)
  }

  private func take(_ batch: JSONValue) -> Int64 {
    let epoch = batch["epoch"]?.string ?? ""
    for event in batch["events"]?.array ?? [] {
      let seq = event["seq"]?.integer ?? 0
      events.append(
        Event(
          epoch: epoch, seq: seq, kind: event["kind"]?.string ?? "", text: event["body"]?["text"]?.string))
      acknowledged[epoch] = max(acknowledged[epoch] ?? 0, seq)
    }
    return acknowledged[epoch] ?? 0
  }
}

/// A request of a client that does as it should.
private struct Request {
  let method: String
  let target: String
  let body: [UInt8]

  /// Takes a whole one out of what has come; `nil`: there is more to come.
  init?(taking input: inout [UInt8]) {
    let end = Array("\r\n\r\n".utf8)
    guard let head = input.indices.first(where: { input[$0...].starts(with: end) }) else { return nil }
    let lines = String(decoding: input[..<head], as: UTF8.self).split(separator: "\r\n")
    let words = lines.first?.split(separator: " ").map(String.init) ?? []
    let length = lines.first { $0.lowercased().hasPrefix("content-length:") }
      .flatMap { Int($0.split(separator: ":")[1].filter(\.isNumber)) }
    let bodyEnd = head + 4 + (length ?? 0)
    guard words.count == 3, input.count >= bodyEnd else { return nil }
    (method, target, body) = (words[0], words[1], Array(input[(head + 4)..<bodyEnd]))
    input.removeFirst(bodyEnd)
  }
}
