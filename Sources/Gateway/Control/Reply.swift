// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import Store

/// Where who follows something waits until it may have changed.
final class News {
  private var followers: [ObjectIdentifier: Waiter] = [:]

  var count: Int { followers.count }

  func add(_ follower: Waiter) { followers[ObjectIdentifier(follower)] = follower }
  func remove(_ follower: Waiter) { followers[ObjectIdentifier(follower)] = nil }

  /// Something is new: all of them look.
  func tell() { for follower in followers.values { follower.resume() } }
}

/// Sends the response to the client.
final class Reply {
  /// Bytes that may wait for a slow reader before reading on.
  private static let maxPending = 32 * 1024

  private static let pagesAtOnce = 4

  /// Produces the next page; `isEnd` when there is nothing more for now.
  typealias Producer = () throws -> (lines: [UInt8], isEnd: Bool)

  /// Thrown by a producer: these lines, and nothing will follow, ever.
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

  /// Rows that are there already.
  func rows(_ lines: [UInt8]) async throws -> Answer {
    var lines = lines
    return try await rows {
      defer { lines = [] }
      return (lines, true)
    }
  }

  /// Answers with rows, one JSON object a line, as fast as the reader takes them: nothing is collected, so a table of any
  /// size costs the memory of a page. With `follow` it stays open and sends what comes later: whenever there is `news`, or
  /// `wake` is resumed; with `joinsNews` on both. Throws when the reader has gone.
  func rows(
    follow: Bool = false, wake: Waiter? = nil, joinsNews: Bool = false, headers: HTTPHeaders? = nil, _ produce: Producer
  ) async throws(CancellationError) -> Answer {
    guard responder.begin(headers: headers ?? headersOfRows) else { return .streamed }
    if let wake, joinsNews { news.add(wake) }
    let wake = wake ?? addFollower(follow)
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
        // The head is out already: a broken end shows the reader that something is missing.
        responder.abort()
        return .streamed
      }
      responder.write(page.lines)
      if page.isEnd {
        guard follow else { break }
        try await wake.wait()
        continue
      }
      // Who reads as fast as we write gets so many pages at a time, as everybody does.
      pages += 1
      if pages.isMultiple(of: Self.pagesAtOnce) { try await loop.nextTurn() }
    }
    responder.end()
    return .streamed
  }

  private func addFollower(_ isFollower: Bool) -> Waiter {
    let follower = Waiter()
    if isFollower { news.add(follower) }
    return follower
  }

  /// Tells with the rows that there are other radios.
  private var headersOfRows: HTTPHeaders {
    var headers = Self.rowHeaders
    if let others = RadiosAPI.others(store) { headers.add(RadiosAPI.othersHeader, others) }
    return headers
  }
}
