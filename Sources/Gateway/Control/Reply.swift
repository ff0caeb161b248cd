// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import Store

/// Wakes the clients that follow something, when it may have changed.
final class News {
  private var followers: [ObjectIdentifier: Waiter] = [:]

  var count: Int { followers.count }

  func add(_ follower: Waiter) { followers[ObjectIdentifier(follower)] = follower }
  func remove(_ follower: Waiter) { followers[ObjectIdentifier(follower)] = nil }

  func tell() { for follower in followers.values { follower.resume() } }
}

/// Sends the response to the client.
final class Reply {
  /// Bytes that may wait for a slow reader before further rows are read.
  private static let maxPending = 32 * 1024

  private static let pagesAtOnce = 4

  /// Produces the next page; `isEnd` when there is nothing more for now.
  typealias Producer = () throws -> (lines: [UInt8], isEnd: Bool)

  /// Thrown by a producer for the last lines: none will follow.
  struct Ended: Error {
    let lines: [UInt8]
  }

  static let rowHeaders: HTTPHeaders = ["Content-Type": "application/x-ndjson"]

  private let responder: HTTPResponder
  private let news: News
  private let store: Store
  private let loop: EventLoop

  init(_ responder: HTTPResponder, _ news: News, _ store: Store, on loop: EventLoop) {
    self.responder = responder
    self.news = news
    self.store = store
    self.loop = loop
  }

  func give(_ answer: Answer) { if case .whole(let response) = answer { responder.respond(response) } }

  /// Answers with rows that exist already.
  func rows(_ lines: [UInt8]) async throws -> Answer {
    var lines = lines
    return try await rows {
      defer { lines = [] }
      return (lines, true)
    }
  }

  /// Answers with rows, one JSON object per line, as fast as the client reads: a table of any size takes only the
  /// memory of a page. With `follow` the answer stays open and sends later rows whenever there is `news` or `wake` is
  /// resumed; with `joinsNews` on both. Throws when the client has disconnected.
  func rows(
    follow: Bool = false, wake: Waiter? = nil, joinsNews: Bool = false, headers: HTTPHeaders? = nil, _ produce: Producer
  ) async throws(CancellationError) -> Answer {
    guard responder.begin(headers: headers ?? headersOfRows) else { return .streamed }
    let getsNews = wake == nil ? follow : joinsNews
    let wake = wake ?? Waiter()
    if getsNews { news.add(wake) }
    defer { news.remove(wake) }
    var pages = 0
    while true {
      if responder.pendingBytes >= Self.maxPending { try await responder.drained() }
      let page: (lines: [UInt8], isEnd: Bool)
      do {
        page = try produce()
      } catch let ended as Ended {
        responder.write(ended.lines)
        responder.end()
        return .streamed
      } catch {
        // The head was sent, so only an aborted answer can show the client that rows are missing.
        responder.abort()
        return .streamed
      }
      responder.write(page.lines)
      if page.isEnd {
        guard follow else { break }
        try await wake.wait()
        continue
      }
      // A fast reader, too, gets only so many pages before others have their turn.
      pages += 1
      if pages.isMultiple(of: Self.pagesAtOnce) { try await loop.nextTurn() }
    }
    responder.end()
    return .streamed
  }

  /// Headers that tell the client of other radios.
  private var headersOfRows: HTTPHeaders {
    var headers = Self.rowHeaders
    if let others = RadiosAPI.others(store) { headers.add(RadiosAPI.othersHeader, others) }
    return headers
  }
}
