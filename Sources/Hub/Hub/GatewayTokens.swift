// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import SQLite

/// The folder of gateways' tokens: a file for each gateway, named by its id, with a token a line. With such a token, only this gateway may write.
public struct GatewayTokens: Sendable {
  /// The folder's identity and time of change: another file changes them.
  private struct Stamp: Equatable {
    var inode: UInt64
    var seconds: Int
    var nanoseconds: Int
  }

  public let folder: String
  private var stamp: Stamp?
  public private(set) var tokens: [HubConfiguration.Token] = []
  /// Files that are invalid, with the reasons.
  public private(set) var faults: [String] = []

  /// `nil`: this user cannot read the folder.
  public init?(folder: String) {
    self.folder = folder
    guard read() else { return nil }
  }

  /// Reads the folder again if it may have changed, or if `always`. `false`: nothing has changed, or it cannot be read.
  public mutating func read(always: Bool = true) -> Bool {
    let now = Self.stamp(of: folder)
    // A missing folder has no stamp, and neither has a folder that changed a moment ago.
    guard always || now == nil || now != stamp else { return false }
    // `try?`: if the folder cannot be read, its last tokens stay valid, and the log says so once.
    guard let names = try? FileManager.default.contentsOfDirectory(atPath: folder) else {
      let fault = "\(folder) cannot be read: the tokens that were in it go on"
      defer { faults = [fault] }
      return !always && faults != [fault]
    }
    let (before, faultsBefore) = (tokens, faults)
    // Two changes within one tick of the file system's clock have the same stamp: so a recent stamp does not count.
    let isYoung = now.map { Int(time(nil)) - $0.seconds < 2 } ?? true
    (stamp, tokens, faults) = (isYoung ? nil : now, [], [])
    // Hidden files are an editor's, or drafts.
    for name in names.sorted() where !name.hasPrefix(".") {
      let location = "\(folder)/\(name)"
      guard Name.isAllowed(name) else {
        faults.append("\(location): a gateway's id must be \(Name.allowed)")
        continue
      }
      let text = FileManager.default.contents(atPath: location).map { String(decoding: $0, as: UTF8.self) }
      guard let text, let secrets = HubConfiguration.secrets(in: text) else {
        faults.append("\(location) cannot be read, is empty, or contains a token of fewer than 16 characters")
        continue
      }
      tokens.append(.init(name: name, secrets: secrets, gateway: name, access: .write, location: location))
    }
    // A file that was empty a moment ago may have a token by now: that does not change the folder.
    if !faults.isEmpty { stamp = nil }
    return always || tokens != before || faults != faultsBefore
  }

  private static func stamp(of folder: String) -> Stamp? {
    var facts = stat()
    guard stat(folder, &facts) == 0 else { return nil }
    return Stamp(inode: UInt64(facts.st_ino), seconds: facts.st_mtim.tv_sec, nanoseconds: facts.st_mtim.tv_nsec)
  }

  // MARK: Commands

  private static let secretBytes = 24

  /// Gives a gateway one more token. It replaces the file as a whole, so that a serving hub sees a changed folder.
  public func add(_ gateway: String) throws(HubConfiguration.Failure) -> String {
    let secret = ((0..<Self.secretBytes).map { _ in UInt8.random(in: .min ... .max) }).hex
    let present = tokens.first { $0.gateway == gateway }?.secrets ?? []
    try write(present + [secret], for: gateway)
    return secret
  }

  /// Removes a gateway's tokens, or all but the newest.
  public func remove(_ gateway: String, keepsNewest: Bool) throws(HubConfiguration.Failure) {
    let present = tokens.first { $0.gateway == gateway }?.secrets ?? []
    if keepsNewest, let newest = present.last { return try write([newest], for: gateway) }
    guard unlink("\(folder)/\(gateway)") == 0 else { throw failure(gateway) }
    WholeFile.syncFolder(of: "\(folder)/\(gateway)")
  }

  private func write(_ secrets: [String], for gateway: String) throws(HubConfiguration.Failure) {
    var facts = stat()
    let bytes = Array((secrets.joined(separator: "\n") + "\n").utf8)
    // The hub reads the file as a member of the folder's group, and no hidden file.
    guard stat(folder, &facts) == 0,
      WholeFile.replace(
        "\(folder)/\(gateway)", with: bytes, mode: 0o640, group: facts.st_gid, draft: "\(folder)/.\(gateway).new")
    else { throw failure(gateway) }
  }

  private func failure(_ gateway: String) -> HubConfiguration.Failure {
    .init(description: "\(folder)/\(gateway): \(String(cString: strerror(errno)))")
  }
}

/// Reads the folder of gateways' tokens again for an unknown token, which may be new.
///
/// It reads at most once in each `pause`: all callers wait for the same next reading.
actor TokenRefresh {
  static let pause: Duration = .milliseconds(500)

  private let pause: Duration
  private let refreshNow: @Sendable () -> Void
  /// The reading that has not begun yet.
  private var pending: Task<Void, Never>?
  private var refreshedAt: ContinuousClock.Instant?

  init(pause: Duration = TokenRefresh.pause, _ refreshNow: @escaping @Sendable () -> Void) {
    (self.pause, self.refreshNow) = (pause, refreshNow)
  }

  /// Returns after a reading that began later than the call.
  func refresh() async {
    if let pending { return await pending.value }
    let task = Task {
      let wait = refreshedAt.map { pause - (ContinuousClock.now - $0) } ?? .zero
      // `try?`: nobody cancels it.
      if wait > .zero { try? await Task.sleep(for: wait) }
      // Later callers need another reading.
      pending = nil
      refreshedAt = .now
      refreshNow()
    }
    pending = task
    await task.value
  }
}
