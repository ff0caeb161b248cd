// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import PageServer

/// Forwards requests of pages to the control socket, here or through `ssh`. Each request has its own connection, which the next request uses again.
final class GatewayPass {
  /// Most simultaneous connections for answers with an end, and for streams. A page has two streams: live events, and packets. It refuses further
  /// streams.
  private static let mostConnections = 8
  private static let mostStreams = 16
  /// Most requests that wait for a connection.
  private static let mostWaiting = 64
  /// Most unread bytes of a page. At this limit the answer breaks off.
  private static let mostUnread = 4 << 20

  private final class Line {
    let client: HTTPClient
    let tunnel: SSHTunnel?

    init(_ client: HTTPClient, _ tunnel: SSHTunnel?) { (self.client, self.tunnel) = (client, tunnel) }

    func close() {
      client.close()
      tunnel?.end()
    }
  }

  private let connection: Connection
  private let loop: EventLoop
  private let turns: LoopSemaphore<Int>
  private var free: [Line] = []
  private var streams = 0

  init(_ connection: Connection, on loop: EventLoop) {
    self.connection = connection
    self.loop = loop
    turns = LoopSemaphore(capacity: Self.mostConnections, bound: Self.mostWaiting)
  }

  func pass(_ request: HTTPRequest, _ way: PassedRoutes.AnswerForm, _ responder: HTTPResponder) async {
    do {
      guard way == .stream else {
        return try await turns.with(0) { try await self.carry(request, way, responder) }
      }
      guard streams < Self.mostStreams else {
        return refuse(responder, 503, "too many pages are open; close one of them")
      }
      streams += 1
      defer { streams -= 1 }
      try await carry(request, way, responder)
    } catch let failure as HTTPFailure {
      refuse(responder, 502, "the gateway does not answer: \(failure)")
    } catch is CancellationError {
      // Nobody waits for the answer.
      responder.abort()
    } catch is LoopSemaphore<Int>.Full {
      refuse(responder, 503, "too many requests at the same time")
    } catch {
      // `ssh` could not start. The terminal shows the reason.
      refuse(responder, 502, "the gateway cannot be reached")
    }
  }

  private func carry(_ request: HTTPRequest, _ way: PassedRoutes.AnswerForm, _ responder: HTTPResponder) async throws {
    while let line = free.popLast() {
      do {
        return try await carry(request, way, responder, on: line)
      } catch HTTPFailure.unreachable where line.tunnel != nil {
        // An unused `ssh` has ended, and nothing was sent: the loop tries the next connection, or opens a new one.
        continue
      }
    }
    try await carry(request, way, responder, on: open())
  }

  private func carry(
    _ request: HTTPRequest, _ way: PassedRoutes.AnswerForm, _ responder: HTTPResponder, on line: Line
  ) async throws {
    let response: HTTPResponse
    do {
      response = try await line.client.send(
        request, timeout: way == .stream ? nil : .seconds(200),
        onPiece: way == .whole ? nil : { piece in self.handOn(piece, way, request, responder, line) })
    } catch {
      line.close()
      // An answer that has begun cannot become an error: it breaks off, and the page notices.
      if responder.isBegun { return responder.abort() }
      throw error
    }
    free.append(line)
    if responder.isBegun { return responder.end() }
    let type: PassedRoutes.AnswerForm = response.status < 400 ? way : .whole
    responder.respond(
      HTTPResponse(status: response.status, headers: Self.headers(type, request.path), body: response.body))
  }

  private func handOn(
    _ piece: [UInt8], _ way: PassedRoutes.AnswerForm, _ request: HTTPRequest, _ responder: HTTPResponder, _ line: Line
  ) {
    // The server refuses: too many answers are open. The page has its refusal.
    if !responder.isBegun, !responder.begin(headers: Self.headers(way, request.path)) { return line.client.close() }
    responder.write(piece)
    if responder.pendingBytes > Self.mostUnread { line.client.close() }
  }

  private func open() throws -> Line {
    let (endpoint, tunnel) = try connection.endpoint()
    return Line(HTTPClient(endpoint, on: loop), tunnel)
  }

  private static func headers(_ way: PassedRoutes.AnswerForm, _ path: String) -> HTTPHeaders {
    var headers = WebServer.dataHeaders
    let type =
      switch way {
      case .whole: "application/json"
      case .rows: "application/x-ndjson"
      case .stream: path == "/v1/live" ? "text/event-stream" : "application/x-ndjson"
      }
    headers.add("Content-Type", type)
    return headers
  }

  private func refuse(_ responder: HTTPResponder, _ status: Int, _ words: String) {
    let body: [UInt8] = .object(["error": .string(words), "code": .string("gateway")])
    responder.respond(HTTPResponse(status: status, headers: Self.headers(.whole, ""), body: body + [10]))
  }
}
