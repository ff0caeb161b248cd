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
  private var request: HTTPRequest?
  /// Came, and is not looked at yet: at most what one read gives.
  private var unread: ArraySlice<UInt8> = []
  private var current: HTTPResponder?
  private var closesAfter = false
  private var isOver = false
  private var goesOn = false
  /// Another one may answer piece by piece.
  var mayStream: () -> Bool = { true }
  /// Something came, or was answered.
  var onUse: () -> Void = {}
  var onEnd: () -> Void = {}

  init(_ stream: SocketStream, on loop: EventLoop, _ handler: @escaping (HTTPRequest, HTTPResponder) -> Void) {
    self.stream = stream
    self.loop = loop
    self.handler = handler
  }

  /// A request is being answered.
  var isBusy: Bool { current != nil }
  var isStreaming: Bool { current?.isStreaming ?? false }

  func start() {
    stream.onBytes = { [weak self] bytes in self?.received(bytes) }
    stream.onClose = { [weak self] _ in self?.ended() }
    stream.onDrained = { [weak self] in self?.drained() }
    stream.start()
  }

  func close() {
    stream.close()
    isOver = true
    let responder = current
    current = nil
    responder?.onGone?()
  }

  private func ended() {
    guard !isOver else { return }
    close()
    onEnd()
  }

  private func drained() {
    guard !isOver else { return }
    if closesAfter, current == nil { return ended() }
    if let current { current.onDrained?() } else { serve() }
  }

  private func received(_ bytes: [UInt8]) {
    onUse()
    if unread.isEmpty { unread = bytes[...] } else { unread.append(contentsOf: bytes) }
    serve()
  }

  /// The next request, when all of it is there and nothing is in hand.
  private func serve() {
    guard !isOver else { return }
    if current == nil, !closesAfter, stream.pendingBytes <= Self.maxUnsent, !unread.isEmpty, !goesOn { serveNext() }
    guard !isOver else { return }
    let isReady = current == nil && !closesAfter && stream.pendingBytes <= Self.maxUnsent
    stream.setReading(unread.isEmpty)
    // Requests that came together take turns with everything else.
    guard isReady, !unread.isEmpty, !goesOn else { return }
    goesOn = true
    loop.nextTurn { [weak self] in
      self?.goesOn = false
      self?.serve()
    }
  }

  private func serveNext() {
    var whole: HTTPRequest?
    do throws(HTTPParseError) {
      let taken = try parser.parse(unread) { event in
        switch event {
        case .request(let method, let target, let headers): request = HTTPRequest(method, target, headers: headers)
        case .body(let piece): request?.body.append(contentsOf: piece)
        case .end:
          whole = request
          request = nil
        case .response: break
        }
      }
      unread = unread.dropFirst(taken)
    } catch {
      return refuse(error)
    }
    if unread.isEmpty { unread = [] }
    guard let whole else { return }
    if !parser.keepsAlive { closesAfter = true }
    let responder = HTTPResponder(
      stream, isHead: whole.method == "HEAD", mayStream: mayStream, giveUp: { [weak self] in self?.ended() }
    ) { [weak self] in self?.answered() }
    current = responder
    handler(whole, responder)
  }

  private func answered() {
    guard !isOver else { return }
    current = nil
    onUse()
    if closesAfter { unread = [] }
    // From wherever the answer came: the next is not served in its midst.
    loop.later { [weak self] in self?.serve() }
  }

  private func refuse(_ error: HTTPParseError) {
    closesAfter = true
    unread = []
    let status = error == .bodyTooLarge ? 413 : 400
    stream.write(HTTPResponse(status: status, headers: ["Connection": "close"]).encode())
  }
}
