-- The fence of primacy: the highest token ever granted of each election. Run it again as often as you like.
CREATE TABLE IF NOT EXISTS primacy_token (
    election VARBINARY(128) NOT NULL PRIMARY KEY,
    token    BIGINT NOT NULL,
    guard    BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- CALL primacy_fence('billing', 42): in your transaction, before or after your writes. It holds the fence until the
-- transaction ends, or it raises SQLSTATE PR001 (stale) or PR002 (no such election): roll back then. On MariaDB a client that rests inside the transaction for
-- longer than 10 s loses it; lower @@idle_transaction_timeout before to make that less. MySQL has no such bound.
-- After an error 1213 the server has rolled back all of the transaction: begin again, fence included. Not for XA
-- transactions, whose XA PREPARE lets go of the fence, and not before DDL, which commits.
-- The SQL mode is stored with the procedure, so that it is not left to the program that runs this.
SET @primacy_sql_mode = @@SESSION.sql_mode;
SET SESSION sql_mode = 'STRICT_ALL_TABLES';
DROP PROCEDURE IF EXISTS primacy_fence;
DELIMITER //
CREATE PROCEDURE primacy_fence(IN named VARCHAR(200) CHARACTER SET utf8mb4, IN offered BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE name_bytes VARBINARY(800) DEFAULT CAST(named AS BINARY);
    DECLARE highest BIGINT DEFAULT NULL;
    DECLARE written INT DEFAULT 0;
    DECLARE message VARCHAR(128);

    IF named IS NULL OR offered IS NULL OR offered < 1 OR LENGTH(name_bytes) NOT BETWEEN 1 AND 128 THEN
        SIGNAL SQLSTATE '22023' SET MESSAGE_TEXT = 'primacy_fence needs an election and a token that was granted';
    END IF;
    IF @@SESSION.innodb_lock_wait_timeout > 10 THEN
        SET SESSION innodb_lock_wait_timeout = 10;
    END IF;
    SET @primacy_galera = FALSE;
    BEGIN
        -- Not every server has these variables, and a statement that names an unknown one is not even read.
        DECLARE EXIT HANDLER FOR 1193 BEGIN END;
        PREPARE primacy_bound FROM 'SET SESSION idle_transaction_timeout =
            IF(@@SESSION.idle_transaction_timeout BETWEEN 1 AND 10, @@SESSION.idle_transaction_timeout, 10)';
        EXECUTE primacy_bound;
        DEALLOCATE PREPARE primacy_bound;
    END;
    BEGIN
        DECLARE EXIT HANDLER FOR 1193 BEGIN END;
        PREPARE primacy_cluster FROM 'SELECT @@wsrep_on AND @@wsrep_provider <> ''none'' INTO @primacy_galera';
        EXECUTE primacy_cluster;
        DEALLOCATE PREPARE primacy_cluster;
    END;
    -- A node of a Galera cluster keeps its share locks to itself; a row that was written is certified against the others.
    IF @primacy_galera THEN
        UPDATE primacy_token SET guard = guard + 1 WHERE election = name_bytes AND token = offered;
        SET written = ROW_COUNT();
    END IF;
    BEGIN
        DECLARE CONTINUE HANDLER FOR NOT FOUND SET highest = NULL;
        SELECT token INTO highest FROM primacy_token WHERE election = name_bytes LOCK IN SHARE MODE;
    END;
    IF highest IS NULL AND EXISTS (SELECT 1 FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name = 'primacy_schema') THEN
        -- A store that has never granted this election does not learn of it here.
        SIGNAL SQLSTATE 'PR002' SET MESSAGE_TEXT = 'the store in this database knows no election of this name; is it misspelled?';
    END IF;
    IF highest IS NULL OR highest < offered THEN
        -- Only in a database that sees this token for the first time.
        INSERT INTO primacy_token (election, token) VALUES (name_bytes, offered)
            ON DUPLICATE KEY UPDATE token = GREATEST(token, offered), guard = guard + 1;
        SELECT token INTO highest FROM primacy_token WHERE election = name_bytes LOCK IN SHARE MODE;
    END IF;
    IF @primacy_galera AND written <> 1 AND highest = offered THEN
        -- The grant of this token arrived between the write and the read, or the row was raised here.
        UPDATE primacy_token SET guard = guard + 1 WHERE election = name_bytes AND token = offered;
        IF ROW_COUNT() <> 1 THEN
            SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'the row of the fence changes just now; begin again';
        END IF;
    END IF;
    IF highest > offered THEN
        SET message = CONCAT('token ', offered, ' is stale: ', highest, ' has been granted; roll back and stop');
        SIGNAL SQLSTATE 'PR001' SET MESSAGE_TEXT = message;
    END IF;
END //
DELIMITER ;
SET SESSION sql_mode = @primacy_sql_mode;

-- The rights that a program needs for it (replace the names). In the store's own database:
--   GRANT SELECT, UPDATE (guard) ON `database`.primacy_token TO 'app'@'host';
-- In any other, which learns of each new leadership from the program:
--   GRANT SELECT, INSERT, UPDATE ON `database`.primacy_token TO 'app'@'host';
-- And to call the procedure:
--   GRANT EXECUTE ON PROCEDURE `database`.primacy_fence TO 'app'@'host';
