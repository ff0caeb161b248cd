// SPDX-License-Identifier: MIT

import Glibc
import Timing

@testable import DBus
@testable import Deflate
@testable import HTTP
@testable import MQTT

extension FuzzTarget {
  /// A stream of requests or answers.
  static func http(_ bytes: [UInt8]) {
    let input = CutInput(bytes)
    let kinds: [HTTPParser.Kind] = [.requests, .responses, .upgrade, .requests]
    let kind = kinds[Int(input.choice & 3)]
    let whole = events([input.whole[...]], kind)
    must(events(input.pieces, kind) == whole, "a stream gives the same messages, however it is cut")
    for case .message(.request(let method, let target, let headers), _, true) in whole {
      let request = HTTPRequest(method, target, headers: headers)
      _ = (request.path, request.query)
      must(request.path.begins(with: "/"), "a path begins with a slash")
    }
  }

  private enum HTTPResult: Equatable {
    case message(HTTPParser.Event, body: [UInt8], isWhole: Bool)
    case refused(HTTPParseError)
  }

  private static func events(_ pieces: [ArraySlice<UInt8>], _ kind: HTTPParser.Kind) -> [HTTPResult] {
    let most = 4096
    var parser = HTTPParser(kind, maxBody: most)
    var results: [HTTPResult] = []
    var (head, body): (HTTPParser.Event?, [UInt8]) = (nil, [])
    for piece in pieces {
      var rest = piece
      while !rest.isEmpty {
        do throws(HTTPParseError) {
          let count = try parser.parse(rest) { event in
            switch event {
            case .body(let more): body += more
            case .end:
              if let head { results.append(.message(head, body: body, isWhole: true)) }
              (head, body) = (nil, [])
            default: head = event
            }
          }
          must(body.count <= most, "a body has at most its limit")
          guard count > 0 else { return results }
          rest = rest.dropFirst(count)
        } catch {
          return results + [.refused(error)]
        }
      }
    }
    return head.map { results + [.message($0, body: body, isWhole: false)] } ?? results
  }

  /// Frames of a server, with and without compression.
  static func websocket(_ bytes: [UInt8]) {
    let input = CutInput(bytes)
    let whole = frames([input.whole[...]], input.choice)
    must(frames(input.pieces, input.choice) == whole, "a stream gives the same frames, however it is cut")
    for case .frame(let frame) in whole where frame.opcode == .text {
      must(String(validating: frame.payload, as: UTF8.self) != nil, "a text is UTF-8")
    }
    for case .frame(let frame) in whole where frame.opcode == .close { _ = try? WebSocketClose.reason(frame.payload) }
    let header = String(decoding: bytes, as: UTF8.self)
    if let (agreed, answer) = PerMessageDeflate.accepted([header], clientBits: 12, serverBits: 12) {
      let offer = PerMessageDeflate.Offer(clientBits: 15, serverBits: 15, dictionary: true)
      must((try? PerMessageDeflate.answered([answer], to: offer)) ?? agreed == agreed, "an agreement reads back")
    }
  }

  private enum WebSocketResult: Equatable {
    case frame(WebSocketFrame)
    /// Which of several mistakes shows first depends on the cuts.
    case refused
  }

  private static func frames(_ pieces: [ArraySlice<UInt8>], _ choice: UInt8) -> [WebSocketResult] {
    let most = 8192
    var decoder = WebSocketDecoder(maxPayload: most)
    if choice & 1 != 0, let inflater = Inflater(windowBits: 9 + Int(choice >> 2 & 3) * 2) {
      decoder.compression = (inflater, choice & 2 != 0)
    }
    var results: [WebSocketResult] = []
    for piece in pieces {
      decoder.append(Array(piece))
      do throws(WebSocketError) {
        while let frame = try decoder.next() {
          must(frame.payload.count <= most, "a message has at most its limit")
          results.append(.frame(frame))
        }
      } catch {
        return results + [.refused]
      }
    }
    return results
  }

  /// Packets of a broker, for the decoder and a session.
  static func mqtt(_ bytes: [UInt8]) {
    let input = CutInput(bytes)
    let version: MQTTVersion = input.choice & 1 == 0 ? .v5 : .v3
    must(
      packets(input.pieces, version) == packets([input.whole[...]], version),
      "a stream gives the same packets, however it is cut")
    var session = MQTTSession(version)
    let options = MQTTOptions(clientID: "c", keepAlive: 60)
    var now = MonotonicTime(seconds: 0)
    session.begin(options, now: now)
    _ = session.opened(options)
    for (place, piece) in input.pieces.enumerated() {
      now = now + .seconds(1)
      guard session.connection != nil else {
        guard let greeting = session.received(Array(piece), now: now) else { continue }
        guard greeting == .accepted else { return }
        _ = session.open { $0.subscribe("t/#", isOthers: true, now: now) }
        continue
      }
      if place % 3 == 0 {
        let message = MQTTMessage(topic: "t", payload: Array(piece), retain: true)
        must(session.open { $0.publish(message, now: now) } != nil, "an open session takes a publication")
      }
      session.open { $0.append(Array(piece), now: now) }
      while let action = session.open({ $0.next(now: now) }) {
        switch action {
        case .deliver(_, let id?): session.open { $0.acknowledge(id, now: now) }
        case .end(let failure, _): return session.close(failure)
        default: break
        }
      }
      _ = session.open { $0.takeOutput() }
    }
  }

  private enum MQTTResult: Equatable {
    case event(MQTTEvent)
    case refused(MQTTError)
  }

  private static func packets(_ pieces: [ArraySlice<UInt8>], _ version: MQTTVersion) -> [MQTTResult] {
    var decoder = MQTTDecoder(version, maxBytes: 2048)
    var results: [MQTTResult] = []
    for piece in pieces {
      decoder.append(Array(piece))
      do throws(MQTTError) {
        while let event = try decoder.next() { results.append(.event(event)) }
      } catch {
        return results + [.refused(error)]
      }
    }
    return results
  }

  /// A message of the bus as libdbus accepts it.
  static func dbus(_ bytes: [UInt8]) {
    guard let library,
      let message = bytes.withUnsafeBufferPointer({ library.demarshal($0.baseAddress, Int32($0.count), nil) })
    else { return }
    defer { library.unref(message) }
    guard let decoded = try? Marshalling.decode(message) else { return }
    for value in decoded.body { _ = (value.signature, value.integer, value.string, value.entries.count, value["Name"]) }
    guard let encoded = try? Marshalling.encode(decoded) else { return }
    defer { library.unref(encoded) }
    // As texts: a number that is none differs from itself.
    must((try? Marshalling.decode(encoded).body).map { "\($0)" } == "\(decoded.body)", "a message survives encoding")
  }

  private struct Library {
    typealias Demarshal = @convention(c) (UnsafePointer<UInt8>?, Int32, OpaquePointer?) -> OpaquePointer?
    typealias Unref = @convention(c) (OpaquePointer) -> Void
    let demarshal: Demarshal
    let unref: Unref
  }

  /// The functions of libdbus that the product does not use; `nil`: it is not installed.
  private static let library: Library? = {
    guard let handle = dlopen("libdbus-1.so.3", RTLD_NOW), let demarshal = dlsym(handle, "dbus_message_demarshal"),
      let unref = dlsym(handle, "dbus_message_unref")
    else { return nil }
    return Library(
      demarshal: unsafeBitCast(demarshal, to: Library.Demarshal.self),
      unref: unsafeBitCast(unref, to: Library.Unref.self))
  }()
}
