// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON

/// A page that is open in somebody's browser: it follows the gateway's stream of changes, and continues after its last event when it connects again.
final class WorldPage {
  private let loop: EventLoop
  private var client: HTTPClient?
  private var task: LoopTask?
  private var unread: [UInt8] = []
  private var epoch: String?
  /// The number of the last event that it has; `nil`: it has not connected yet.
  private(set) var last: Int64?
  var isOpen = false
  private(set) var breaches: [String] = []

  init(on loop: EventLoop) { self.loop = loop }

  /// Follows the stream at a socket, over its ends, until `leave`.
  func follow(_ socket: String) {
    leave()
    guard isOpen else { return }
    task = loop.begin { [weak self, loop] in
      while let self {
        await attempt(socket)
        // `try?`: it is cancelled when the page leaves.
        guard (try? await loop.sleep(for: .seconds(2))) != nil else { return }
      }
    }
  }

  func leave() {
    task?.cancel()
    client?.close()
    (task, client, unread) = (nil, nil, [])
  }

  private func attempt(_ socket: String) async {
    let client = HTTPClient(.unix(location: socket), on: loop)
    (self.client, unread) = (client, [])
    defer { client.close() }
    let request = HTTPRequest("GET", "/v1/live", headers: last.map { ["Last-Event-ID": "\($0)"] } ?? [:])
    // `try?`: it connects again, whatever has happened.
    _ = try? await client.send(request, timeout: .seconds(60)) { [weak self] bytes in self?.take(bytes) }
  }

  private func take(_ bytes: [UInt8]) {
    for byte in bytes {
      guard byte == 10, unread.last == 10 else {
        unread.append(byte)
        continue
      }
      let lines = String(decoding: unread, as: UTF8.self).split(separator: "\n")
      unread = []
      func value(_ name: String) -> String? {
        lines.first { $0.hasPrefix("\(name): ") }.map { String($0.dropFirst(name.count + 2)) }
      }
      guard let kind = value("event"), let seq = value("id").flatMap({ Int64($0) }) else { continue }
      // `try?`: then it has no fields.
      handle(kind, seq, (try? JSONValue(parsing: Array((value("data") ?? "").utf8))) ?? .null)
    }
  }

  private func handle(_ kind: String, _ seq: Int64, _ data: JSONValue) {
    if kind == "hello" {
      let isSame = epoch == nil || epoch == data["epoch"]?.string
      if let last, isSame, data["missed"]?.bool != true, seq != last {
        breaches.append("its stream continues at \(seq) after \(last), and does not say so")
      }
      (epoch, last) = (data["epoch"]?.string, seq)
    } else {
      if let last, seq != last + 1 { breaches.append("its stream has event \(seq) after \(last)") }
      last = seq
    }
  }
}
