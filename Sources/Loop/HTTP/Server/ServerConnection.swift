// SPDX-License-Identifier: MIT

import EventLoop
import Sockets

/// One connection to the server. While a request is in progress, only data that arrived with it is read.
final class ServerConnection {
  /// Pipelined requests are answered while no more than this waits to be read.
  private static let maxUnsent = 64 * 1024

  let number: Int
  private let stream: SocketStream
  private let loop: EventLoop
  private let server: HTTPServer
  private let peer: IPAddress?
  private var parser: HTTPParser
  /// Received bytes that are not parsed yet: at most one read.
  private var unread: ArraySlice<UInt8> = []
  private var current: HTTPResponder?
  private var watch: RequestWatch

  init(_ stream: SocketStream, _ number: Int, from peer: IPAddress?, on loop: EventLoop, of server: HTTPServer) {
    parser = HTTPParser(.requests, maxBody: server.bodyLimit)
    self.peer = peer
    self.stream = stream
    self.loop = loop
    self.server = server
    self.number = number
    watch = RequestWatch(now: Self.milliseconds(loop))
  }

  private static func milliseconds(_ loop: EventLoop) -> Int64 { loop.now.nanoseconds / 1_000_000 }
  private var now: Int64 { Self.milliseconds(loop) }

  /// False: the peer has timed out.
  var mayGoOn: Bool {
    watch.mayGoOn(
      now: now, isKnown: server.isKnown(self), waiting: stream.outstandingBytes,
      taken: Int64(truncatingIfNeeded: stream.movedBytes))
  }

  /// False: either side has closed it; a handler may still be running.
  var isOpen: Bool { stream.isOpen }
  var isBusy: Bool { current != nil }
  var isStreaming: Bool { isOpen && current?.isStreaming ?? false }

  /// Serves until either side closes it.
  func run() async {
    // The peer is gone or the server closed the connection: there is nobody to report an error to.
    do { try await serve() } catch {}
    close()
  }

  /// Ends its task, and with it the request in progress.
  func close() { stream.close() }

  private func serve() async throws {
    while let request = try await nextRequest() {
      guard try await answer(request) else { return }
      watch.answered(now: now)
      server.used(self)
      guard parser.keepsAlive else { break }
      // At the end of the requests, what is not sent would be dropped: a client that asks for no more still reads.
      while stream.pendingBytes > (unread.isEmpty ? 0 : Self.maxUnsent) { try await stream.drained() }
      // Pipelined requests alternate with other tasks.
      if !unread.isEmpty { try await loop.nextTurn() }
    }
    while stream.pendingBytes > 0 { try await stream.drained() }
  }

  /// `nil`: the request is invalid, and its refusal is being sent.
  private func nextRequest() async throws -> HTTPRequest? {
    var (request, isWhole): (HTTPRequest?, Bool) = (nil, false)
    while true {
      if unread.isEmpty {
        unread = try await stream.read()[...]
        server.used(self)
      }
      do throws(HTTPParseError) {
        let taken = try parser.parse(unread) { event in
          switch event {
          case .request(let method, let target, let headers):
            request = HTTPRequest(method, target, headers: headers)
            watch.began(now: now)
          case .body(let piece):
            request?.body.append(contentsOf: piece)
            watch.received(piece.count, now: now)
          case .end:
            isWhole = true
            watch.ended(now: now)
          case .response: break
          }
        }
        unread = unread.dropFirst(taken)
      } catch {
        let status = error == .bodyTooLarge ? 413 : 400
        stream.write(HTTPResponse(status: status, headers: ["Connection": "close"]).encode())
        return nil
      }
      if unread.isEmpty { unread = [] }
      if isWhole, let request { return request }
    }
  }

  /// False: the answer was aborted. Throws when the peer disconnects meanwhile: then the handler is cancelled.
  private func answer(_ request: HTTPRequest) async throws -> Bool {
    let responder = HTTPResponder(
      stream, isHead: request.method == "HEAD", peer: peer, changed: stream.changed, of: server, for: self)
    current = responder
    server.used(self)
    defer { current = nil }
    try await loop.race(
      { await self.server.handler(request, responder) },
      { try await self.untilGone() })
    // A handler may leave the answer to another task.
    while !responder.isOver { _ = try await stream.hasChanged() }
    return !responder.isAborted
  }

  /// Never returns; throws when the peer is gone.
  private func untilGone() async throws { while true { _ = try await stream.hasChanged() } }
}
