// SPDX-License-Identifier: MIT

import EventLoop
import Streams

/// Answers one request: at once, or piece by piece.
public final class HTTPResponder {
  private let stream: any ByteStream
  private let isHead: Bool
  private let mayStream: () -> Bool
  /// Resumed when the answer is over.
  private let changed: Waiter
  private(set) var isOver = false
  /// It was given up in the middle.
  private(set) var isAborted = false
  private(set) var isStreaming = false
  /// The peer went away while it was being answered.
  public var onGone: (() -> Void)?
  /// What was written so far has gone out: more may be written.
  public var onDrained: (() -> Void)?

  init(_ stream: any ByteStream, isHead: Bool, changed: Waiter, mayStream: @escaping () -> Bool) {
    self.stream = stream
    self.isHead = isHead
    self.changed = changed
    self.mayStream = mayStream
  }

  /// Bytes that wait to go out: a slow reader.
  public var pendingBytes: Int { stream.pendingBytes }

  public func respond(_ response: HTTPResponse) {
    guard !isOver, !isStreaming else { return }
    stream.write(response.encode(withoutBody: isHead))
    finish()
  }

  /// Begins an answer whose end is not known yet (chunked). False: so many are open already that this one was refused, and
  /// is over.
  public func begin(status: Int = 200, headers: HTTPHeaders) -> Bool {
    guard !isOver, !isStreaming else { return false }
    guard mayStream() else {
      let words = #"{"error":"too many streams are open; close one of them","code":"full"}"#
      respond(HTTPResponse(status: 503, headers: ["Content-Type": "application/json"], body: Array(words.utf8)))
      return false
    }
    isStreaming = true
    var bytes = Array("HTTP/1.1 \(status) \(HTTPResponse.reason(status))\r\nTransfer-Encoding: chunked\r\n".utf8)
    headers.write(to: &bytes)
    bytes.append(contentsOf: "\r\n".utf8)
    stream.write(bytes)
    return true
  }

  public func write(_ piece: [UInt8]) {
    guard isStreaming, !isOver, !piece.isEmpty else { return }
    stream.write(Array("\(String(piece.count, radix: 16))\r\n".utf8) + piece + Array("\r\n".utf8))
  }

  public func end() {
    guard isStreaming, !isOver else { return }
    stream.write(Array("0\r\n\r\n".utf8))
    finish()
  }

  private func finish() {
    isOver = true
    changed.resume()
  }

  /// Gives up in the middle: the peer sees a broken answer.
  public func abort() {
    onGone = nil
    isAborted = true
    finish()
  }
}
