// SPDX-License-Identifier: MIT

import EventLoop
import Streams

/// One connection to the server: a request at a time. While one is in hand nothing further is read but what has come with it.
final class ServerConnection {
  /// Requests that came together are answered while no more than this waits to be read.
  private static let maxUnsent = 64 * 1024

  private let stream: SocketStream
  private let loop: EventLoop
  private let handler: (HTTPRequest, HTTPResponder) -> Void
  private var parser = HTTPParser(.requests, maxBody: HTTPServer.maxBody)
  /// Came, and is not looked at yet: at most what one read gives.
  private var unread: ArraySlice<UInt8> = []
  private var current: HTTPResponder?
  private var task: LoopTask?
  /// Another one may answer piece by piece.
  private let mayStream: () -> Bool
  /// Something came, or was answered.
  private let onUse: () -> Void

  init(
    _ stream: SocketStream, on loop: EventLoop, mayStream: @escaping () -> Bool, onUse: @escaping () -> Void,
    _ handler: @escaping (HTTPRequest, HTTPResponder) -> Void
  ) {
    self.stream = stream
    self.loop = loop
    self.mayStream = mayStream
    self.onUse = onUse
    self.handler = handler
  }

  /// A request is being answered.
  var isBusy: Bool { current != nil }
  var isStreaming: Bool { current?.isStreaming ?? false }

  func start(onEnd: @escaping () -> Void) {
    task = loop.begin {
      // The peer has gone, or was closed from here: nobody is left to be told.
      do { try await self.serve() } catch {}
      self.close()
      onEnd()
    }
  }

  func close() {
    task?.cancel()
    stream.close()
    let responder = current
    current = nil
    responder?.onGone?()
  }

  private func serve() async throws {
    while let request = try await nextRequest() {
      onUse()
      guard try await answer(request) else { return }
      onUse()
      guard parser.keepsAlive else { break }
      while stream.pendingBytes > Self.maxUnsent { try await stream.drained() }
      // Requests that came together take turns with everything else.
      if !unread.isEmpty { try await loop.nextTurn() }
    }
    while stream.pendingBytes > 0 { try await stream.drained() }
  }

  /// `nil`: what came is no request; its refusal is on its way.
  private func nextRequest() async throws -> HTTPRequest? {
    var (request, isWhole): (HTTPRequest?, Bool) = (nil, false)
    while true {
      if unread.isEmpty {
        unread = try await stream.read()[...]
        onUse()
      }
      do throws(HTTPParseError) {
        let taken = try parser.parse(unread) { event in
          switch event {
          case .request(let method, let target, let headers): request = HTTPRequest(method, target, headers: headers)
          case .body(let piece): request?.body.append(contentsOf: piece)
          case .end: isWhole = true
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

  /// False: it was given up in the middle.
  private func answer(_ request: HTTPRequest) async throws -> Bool {
    let responder = HTTPResponder(
      stream, isHead: request.method == "HEAD", changed: stream.changed, mayStream: mayStream)
    current = responder
    handler(request, responder)
    while !responder.isOver {
      if try await stream.hasChanged() { responder.onDrained?() }
    }
    current = nil
    return !responder.isAborted
  }
}
