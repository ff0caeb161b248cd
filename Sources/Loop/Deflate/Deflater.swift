// SPDX-License-Identifier: MIT

import CZlib

/// Compresses a series of messages, each with the ones before it as context. Source: RFC 1951.
public final class Deflater {
  private let stream: UnsafeMutablePointer<z_stream>
  private let dictionary: [UInt8]

  /// For messages: no header, no checksum. `windowBits`: 9 to 15; `memoryLevel`: 1 to 9. It takes 4 × 2^windowBits + 512 × 2^memoryLevel
  /// + 6 KiB. `dictionary`: what the peer's window begins with, too. `nil`: no memory.
  public convenience init?(windowBits: Int, memoryLevel: Int, dictionary: [UInt8] = []) {
    self.init(bits: -Int32(min(max(windowBits, 9), 15)), memory: Int32(min(max(memoryLevel, 1), 9)), dictionary)
  }

  fileprivate init?(bits: Int32, memory: Int32, _ dictionary: [UInt8]) {
    stream = .allocate(capacity: 1)
    stream.initialize(to: z_stream())
    self.dictionary = dictionary
    guard meshpost_deflate_begin(stream, bits, memory) == Z_OK else {
      stream.deallocate()
      return nil
    }
    prime()
  }

  deinit {
    deflateEnd(stream)
    stream.deallocate()
  }

  private func prime() {
    guard !dictionary.isEmpty else { return }
    deflateSetDictionary(stream, dictionary, UInt32(dictionary.count))
  }

  /// Forgets the context.
  public func reset() {
    deflateReset(stream)
    prime()
  }

  /// One message, without the four bytes that every message would end with. Source: RFC 7692 § 7.2.1.
  public func message(_ bytes: [UInt8]) -> [UInt8] {
    var output = run(bytes, Z_SYNC_FLUSH)
    if output.suffix(4) == [0, 0, 0xFF, 0xFF] { output.removeLast(4) }
    return output
  }

  /// The same of a link that has said `context`, whatever this deflater did before: links that say little share one.
  public func message(_ bytes: [UInt8], behind context: LinkContext) -> [UInt8] {
    deflateReset(stream)
    context.each { deflateSetDictionary(stream, $0, UInt32($1)) }
    return message(bytes)
  }

  /// How far back a deflater of this window refers: not to its whole window. Source: `MAX_DIST` of zlib's deflate.h.
  public static func reach(windowBits: Int) -> Int { (1 << min(max(windowBits, 9), 15)) - 262 }

  /// All of `bytes` as one gzip file. `nil`: no memory. Source: RFC 1952.
  public static func gzip(_ bytes: [UInt8]) -> [UInt8]? {
    // With 16 more it is gzip. The window need not be larger than what there is.
    let bits = (9...13).first { 1 << $0 >= bytes.count } ?? 13
    return Deflater(bits: 16 + Int32(bits), memory: 5, [])?.run(bytes, Z_FINISH)
  }

  /// All of `bytes`, by themselves: for a receiver that has nothing but the dictionary. `nil`: no memory. Source: RFC 1951.
  public static func whole(_ bytes: [UInt8], dictionary: [UInt8]) -> [UInt8]? {
    let bits = (9...13).first { 1 << $0 >= bytes.count + dictionary.count } ?? 13
    return Deflater(bits: -Int32(bits), memory: 5, dictionary)?.run(bytes, Z_FINISH)
  }

  fileprivate func run(_ bytes: [UInt8], _ flush: Int32) -> [UInt8] {
    var output: [UInt8] = []
    bytes.withUnsafeBufferPointer { input in
      stream.pointee.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
      stream.pointee.avail_in = UInt32(input.count)
      Chunk.each(stream, into: &output) { deflate(stream, flush) != Z_OK || stream.pointee.avail_out > 0 }
    }
    stream.pointee.next_in = nil
    return output
  }
}

/// A gzip file that is made piece by piece. It takes 54 KiB while it is open. Source: RFC 1952.
public final class GzipWriter {
  private let deflater: Deflater

  /// `nil`: no memory.
  public init?() {
    guard let deflater = Deflater(bits: 16 + 13, memory: 5, []) else { return nil }
    self.deflater = deflater
  }

  /// Returns what is ready so far, which is often nothing: the rest comes with later pieces, or the end.
  public func add(_ bytes: [UInt8]) -> [UInt8] { deflater.run(bytes, Z_NO_FLUSH) }

  /// Returns the rest of the file.
  public func end() -> [UInt8] { deflater.run([], Z_FINISH) }
}

/// What comes out, by the piece: nothing is allocated for what does not come.
enum Chunk {
  private static let bytes = 2048

  /// Until `step` returns true.
  static func each(
    _ stream: UnsafeMutablePointer<z_stream>, into output: inout [UInt8], _ step: () -> Bool
  ) {
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: bytes) { chunk in
      var isOver = false
      while !isOver {
        stream.pointee.next_out = chunk.baseAddress
        stream.pointee.avail_out = UInt32(bytes)
        isOver = step()
        output.append(contentsOf: chunk.prefix(bytes - Int(stream.pointee.avail_out)))
      }
    }
    stream.pointee.next_out = nil
  }
}
