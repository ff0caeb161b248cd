// SPDX-License-Identifier: MIT

/// Whether this machine's wall clock may judge, and set, the clocks of others. Pure.
///
/// The kernel also calls a clock synchronised that somebody has just set, or that a wrong server keeps wrong. Nobody can set the time since the boot: a
/// wall clock that moves against it was set. Then it judges nobody until one of these:
///
/// * it is back where it was
/// * two clocks of others at least, and more than contradict, are right by the new time
/// * it was synchronised for a day, and no clock of others that was right by the old time contradicts
/// * a person has said that it is right
///
/// Over a restart of the machine nothing shows whether it was set: then the kernel is believed until a clock contradicts that was known before.
public struct ClockProof: Equatable, Sendable {
  public enum Doubt: Equatable, Sendable {
    /// It was set, by these milliseconds.
    case moved(Int64)
    /// Since the machine's start it differs from so many clocks by another amount than before.
    case contradicted(Int)
  }

  /// What a clock of another machine says about ours.
  public enum Vote: Equatable, Sendable { case agrees, contradicts }

  /// Milliseconds that leap seconds and corrections of a server may make.
  private static let tolerance: Int64 = 5000
  /// Milliseconds after which a clock that nobody contradicts is believed.
  private static let patience: Int64 = 86_400_000
  /// The most votes of each kind: more change nothing.
  private static let mostVotes = 64

  /// Wall time minus the time since the boot, in milliseconds, of the clock that was believed last; `nil`: there was none in this boot.
  private var reference: Int64?
  /// Whether something vouches for the reference.
  private var isProven = false
  /// By how much the clock was set since.
  private var moved: Int64?
  /// Since when it has been synchronised without being set, by the time since the boot. A restart of the program begins anew.
  private var since: Int64?
  private var (agreeing, contradicting): (Set<UInt64>, Set<UInt64>) = ([], [])

  public init() {}

  /// Whether clocks of others are asked for their vote.
  public var wantsVotes: Bool { moved != nil || !isProven }

  /// `nil`: it may judge and set others, if it is synchronised.
  public var doubt: Doubt? {
    if let moved { return .moved(moved) }
    return isProven || contradicting.isEmpty ? nil : .contradicted(contradicting.count)
  }

  /// Whether another time is believed than before: what was compared with that one is no longer known.
  public func believesAnotherTime(than before: ClockProof) -> Bool {
    guard let reference, let former = before.reference else { return false }
    return !Self.isNear(reference.subtracting(saturating: former), 0)
  }

  /// Look before each use. Both times are milliseconds.
  public mutating func look(wall: Int64, sinceBoot: Int64, isSynchronised: Bool) {
    guard isSynchronised else { return since = nil }
    let skew = wall.subtracting(saturating: sinceBoot)
    let before = reference ?? skew
    reference = before
    let moved = skew.subtracting(saturating: before)
    if Self.isNear(moved, 0) {
      if self.moved != nil { stays(at: nil) }
    } else if !(self.moved.map { Self.isNear(moved, $0) } ?? false) {
      stays(at: moved)
    }
    let begin = since ?? sinceBoot
    since = begin
    settle(isOld: sinceBoot.subtracting(saturating: begin) >= Self.patience)
  }

  /// A clock of another machine, by a number of its own.
  public mutating func heard(_ vote: Vote, from clock: UInt64) {
    guard wantsVotes else { return }
    switch vote {
    case .agrees:
      contradicting.remove(clock)
      if agreeing.count < Self.mostVotes { agreeing.insert(clock) }
    case .contradicts:
      agreeing.remove(clock)
      if contradicting.count < Self.mostVotes { contradicting.insert(clock) }
    }
    settle(isOld: false)
  }

  /// A person has compared it.
  public mutating func confirm(wall: Int64, sinceBoot: Int64) {
    reference = wall.subtracting(saturating: sinceBoot)
    believe()
  }

  private mutating func stays(at moved: Int64?) {
    self.moved = moved
    since = nil
    (agreeing, contradicting) = ([], [])
  }

  private mutating func settle(isOld: Bool) {
    let isOutvoted = agreeing.count >= (moved == nil ? 1 : 2) && agreeing.count > contradicting.count
    guard wantsVotes, isOutvoted || (isOld && contradicting.isEmpty) else { return }
    if let moved, let reference { self.reference = reference.adding(saturating: moved) }
    believe()
  }

  private mutating func believe() {
    isProven = true
    stays(at: nil)
  }

  private static func isNear(_ one: Int64, _ other: Int64) -> Bool {
    one.subtracting(saturating: other).magnitude <= UInt64(tolerance)
  }
}

extension ClockProof {
  /// The stored form, for this boot only. Votes are collected anew.
  public var kept: [Int64] { [reference, isProven ? 1 : 0, moved].compactMap(\.self) }

  /// `kept`: the stored form of this boot, perhaps damaged.
  public init(kept: [Int64]) {
    guard (2...3).contains(kept.count) else { return }
    (reference, isProven, moved) = (kept[0], kept[1] == 1, kept.count == 3 ? kept[2] : nil)
  }
}
