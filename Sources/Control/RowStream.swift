// SPDX-License-Identifier: MIT

import EventLoop
import HTTP

/// Answers with rows, one JSON object a line, as fast as the reader takes them: nothing is collected, so a table of any
/// size costs the memory of a page. With `follow` it stays open and tells what comes later.
final class RowStream {
  /// Bytes that may wait for a slow reader before reading on.
  private static let maxPending = 32 * 1024

  private static let pagesAtOnce = 4

  /// Produces the next page; `isEnd` when there is nothing more for now.
  typealias Producer = () throws -> (lines: [UInt8], isEnd: Bool)

  /// Thrown by a producer: these lines, and nothing will follow, ever.
  struct Ended: Error {
    let lines: [UInt8]
  }

  private let responder: HTTPResponder
  private let follow: Bool
  private let headers: HTTPHeaders
  private let produce: Producer
  private var isOver = false
  var onEnd: () -> Void = {}

  init(
    _ responder: HTTPResponder, follow: Bool, headers: HTTPHeaders = ["Content-Type": "application/x-ndjson"],
    _ produce: @escaping Producer
  ) {
    self.headers = headers
    self.responder = responder
    self.follow = follow
    self.produce = produce
    responder.onGone = { [weak self] in self?.finish() }
    responder.onDrained = { [weak self] in self?.writePages() }
  }

  func start() {
    guard responder.begin(headers: headers) else { return finish() }
    writePages()
  }

  /// Something may be new. A reader who is as fast as we are is told when he has had so many pages, as everybody is.
  func writePages() {
    var pages = 0
    while !isOver, responder.pendingBytes < Self.maxPending, pages < Self.pagesAtOnce {
      do {
        let (lines, isEnd) = try produce()
        responder.write(lines)
        if !lines.isEmpty { pages += 1 }
        guard isEnd else { continue }
        if !follow {
          responder.end()
          finish()
        }
        return
      } catch let ended as Ended {
        responder.write(ended.lines)
        responder.end()
        return finish()
      } catch {
        // The head is out already: a broken end tells the reader.
        responder.abort()
        return finish()
      }
    }
  }

  private func finish() {
    guard !isOver else { return }
    isOver = true
    onEnd()
  }
}
